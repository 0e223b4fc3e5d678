"""A session of PAM for a user, opened in the process that becomes theirs: the limits that its modules set stay.

Imported by the supervisor's isolated interpreter beside `enter`, so it needs nothing of Shoal. The session is not
closed: what modules would undo then, such as mounts, does not belong into this service.
"""

from __future__ import annotations

import ctypes
import errno
import resource

_LIBRARY = "libpam.so.0"
_SUCCESS, _CONVERSATION_ERROR = 0, 19
_ANSWER = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


class _Conversation(ctypes.Structure):
    _fields_ = (("answer", _ANSWER), ("data", ctypes.c_void_p))


def open_session(service: str, user: str) -> None:
    """What the service's `session` modules do for this user. More open files than before are not had: that limit is the
    server's own. Raises OSError, in PAM's words, where a module refuses."""
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    try:
        library = ctypes.CDLL(_LIBRARY)
    except OSError:
        raise OSError(errno.ENOENT, f"{_LIBRARY} is not installed, which {service} of PAM needs") from None
    library.pam_strerror.restype = ctypes.c_char_p
    conversation = _Conversation(_ANSWER(lambda *_: _CONVERSATION_ERROR), None)  # nobody is there to be asked
    handle = ctypes.c_void_p()
    code = library.pam_start(service.encode(), user.encode(), ctypes.byref(conversation), ctypes.byref(handle))
    if code == _SUCCESS:
        code = library.pam_open_session(handle, 0)
    if code != _SUCCESS:
        why = (library.pam_strerror(handle, code) or b"").decode(errors="replace")
        raise OSError(errno.EPERM, f"PAM opens no session of {service} for {user}: {why}")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed != resource.RLIM_INFINITY and (hard == resource.RLIM_INFINITY or hard > allowed):
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, allowed) if soft >= 0 else allowed, allowed))
