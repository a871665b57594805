"""Paths of the server that its checks know: those of Streamlit, and our own."""

READY = "/ready"
SIGN_IN = "/sign-in"
HEALTH = "/_stcore/health"
LOGIN = "/auth/login"
LOGOUT = "/auth/logout"
CALLBACK = "/oauth2callback"  # where a provider sends users back to
UPLOADS = "/_stcore/upload_file/"  # followed by the session and the id of the file
