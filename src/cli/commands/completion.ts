import { Argument, type Command } from "commander";
import type { Io } from "../io.ts";

export function addCompletion(program: Command, io: Io): void {
  program
    .command("completion")
    .addArgument(new Argument("<shell>").choices(["bash", "zsh", "fish"]))
    .description("prints a script for completion of commands and options in a shell")
    .addHelpText("after", "\nExample: sluice completion bash > /etc/bash_completion.d/sluice")
    .action((shell: "bash" | "zsh" | "fish") => {
      io.out(shell === "fish" ? fish(program) : `${shell === "zsh" ? ZSH : ""}${bash(program)}`);
    });
}

/** Makes zsh run the completion script for bash. */
const ZSH = "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n";

function optionsOf(command: Command): string[] {
  return command.options.flatMap(({ long, hidden }) => (hidden ? [] : (long ?? [])));
}

/** Returns the words that may follow a command: its options, its sub-commands and their options. */
function wordsAfter(command: Command): string[] {
  const below = command.commands.flatMap((each) => [each.name(), ...optionsOf(each)]);
  return [...new Set([...optionsOf(command), ...below])];
}

function bash(program: Command): string {
  const names = program.commands.map((command) => command.name());
  const cases = program.commands.map(
    (command) => `    ${command.name()}) words="${wordsAfter(command).join(" ")}" ;;`,
  );
  return `_sluice() {
  local current="\${COMP_WORDS[COMP_CWORD]}" words="" word
  local globals="${optionsOf(program).join(" ")} --help"
  for word in "\${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case "$word" in
${cases.join("\n").replaceAll(/^/gm, "  ")}
      *) continue ;;
    esac
    COMPREPLY=($(compgen -W "$words $globals" -- "$current"))
    return
  done
  COMPREPLY=($(compgen -W "${names.join(" ")} $globals" -- "$current"))
}
complete -o default -F _sluice sluice
`;
}

function fish(program: Command): string {
  const quoted = (text: string): string => `'${text.replaceAll(/[\\']/g, "\\$&")}'`;
  const lines = program.commands.flatMap((command) => {
    const after = `complete -c sluice -n '__fish_seen_subcommand_from ${command.name()}'`;
    const options = [command, ...command.commands].flatMap((each) =>
      each.options.filter(({ hidden }) => !hidden),
    );
    return [
      `complete -c sluice -n __fish_use_subcommand -a ${command.name()} -d ${quoted(command.description())}`,
      ...command.commands.map(
        (each) => `${after} -a ${each.name()} -d ${quoted(each.description())}`,
      ),
      ...options.map(
        ({ long, description }) => `${after} -l ${long!.slice(2)} -d ${quoted(description)}`,
      ),
    ];
  });
  const globals = program.options.map(
    ({ long, description }) => `complete -c sluice -l ${long!.slice(2)} -d ${quoted(description)}`,
  );
  return `${[...globals, ...lines].join("\n")}\n`;
}
