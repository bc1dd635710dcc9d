package job

// Locked is why a request is refused: somebody works on its subject. Asking again later
// may help. It is wrapped by a problem.Conflict.
type Locked struct {
	Subject string // as users read it: "Node UUID"
	Host    string // of the conductor that works
}

func (l Locked) Error() string {
	return l.Subject + " is locked by host " + l.Host + ", please retry after the current operation is completed."
}
