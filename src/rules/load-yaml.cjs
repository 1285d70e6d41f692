/**
 * Loads the YAML parser when a rules file is first read. This module is CommonJS, so that Node loads the parser
 * synchronously, and bundlers still include the parser.
 */
exports.loadYaml = () => require("yaml");
