/** Loads the YAML parser when a file is first read. In CommonJS, so that Node does so at once and a bundler sees what to include. */
exports.loadYaml = () => require("yaml");
