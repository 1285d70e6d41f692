// Without fonts: the page uses the fonts of the reader's system, so nothing is fetched.
import DefaultTheme from "vitepress/theme-without-fonts";
import type { Theme } from "vitepress";
import { defineComponent, h, onBeforeUnmount, onMounted, ref } from "vue";
import "./style.css";
import "./playground/style.css";

/** Loads the playground in the browser only, and only on the page that shows it. */
const Playground = defineComponent({
  setup() {
    const root = ref<HTMLElement>();
    let isMounted = true;
    let close = (): void => {};
    onMounted(async () => {
      const { openPlayground } = await import("./playground/page.ts");
      if (isMounted) close = openPlayground(root.value!);
    });
    onBeforeUnmount(() => {
      isMounted = false;
      close();
    });
    return () => h("div", { ref: root, class: "playground" });
  },
});

export default {
  extends: DefaultTheme,
  enhanceApp({ app }) {
    app.component("Playground", Playground);
  },
} satisfies Theme;
