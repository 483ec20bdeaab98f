"""Every setting as frozen dataclasses, without torch: a module a group or command of conf/."""
