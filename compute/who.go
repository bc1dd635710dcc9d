package compute

import (
	"salvor/record"
)

// Who is who asks for something. An administrator passes locks and projects; one without a project sees all.
type Who struct {
	record.Asker
	Project string
	Admin   bool
}
