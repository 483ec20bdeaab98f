"""Every setting as frozen dataclasses, without torch: a module for each group and command of conf/."""
