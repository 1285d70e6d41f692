// Without fonts: the page uses the fonts of the reader's system, so nothing is fetched.
import DefaultTheme from "vitepress/theme-without-fonts";
import "./style.css";

export default DefaultTheme;
