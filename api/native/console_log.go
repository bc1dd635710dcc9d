package native

import (
	"net/http"

	"salvor/api"
	"salvor/metal"
)

// consoleLogs are the requests about what machines wrote on their serial lines.
type consoleLogs struct{ *server }

// routes are for those who may rescue the node: a console may show secrets, so a reader does not get it.
func (s consoleLogs) routes() []api.Route {
	return []api.Route{{Method: http.MethodGet, Path: "/nodes/{ident}/console", Do: s.show}}
}

// consoleLogAnswer is a console log with whether it is read.
type consoleLogAnswer struct {
	Enabled bool `json:"enabled"`
	metal.ConsoleLog
}

func (s consoleLogs) show(c *api.Call) error {
	n, err := s.rescuable(c)
	if err != nil {
		return err
	}
	log, err := s.Nodes.ConsoleLog(c.R.Context(), n.ID)
	if err != nil {
		return err
	}
	log.Problem = c.Principal.Redact(log.Problem)
	if log.Parts == nil {
		log.Parts = []metal.ConsolePart{}
	}
	return c.JSON(http.StatusOK, consoleLogAnswer{n.ConsoleEnabled, log})
}
