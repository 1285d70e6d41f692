export function loadYaml(): typeof import("yaml");
