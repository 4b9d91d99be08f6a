"""The built-in rules, one pattern each, registered in the entry point group ``perfci.rules`` like any plug-in."""
