package main

import (
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"salvor/config"
)

// serveFlags find the configuration of a control plane on this machine as salvor serve does: by flag, variable or file.
type serveFlags struct{ file, state, database string }

// flags defines them; lead is put before what they say, name is the flag of the database.
func (s *serveFlags) flags(cmd *cobra.Command, name, lead string) {
	f := cmd.Flags()
	f.StringVar(&s.file, "config", "", lead+"configuration file of salvor serve")
	f.StringVar(&s.database, name, "", lead+"sqlite:PATH or postgres://... (default: as salvor serve has it)")
	f.StringVar(&s.state, "state-dir", "", lead+"state directory of salvor serve")
}

func (s *serveFlags) source(name string) (config.Source, error) {
	out := config.Source{File: s.file, Env: os.Environ()}
	if s.state != "" {
		abs, err := filepath.Abs(s.state)
		if err != nil {
			return out, err
		}
		out.Flags = append(out.Flags, config.Setting{Section: "DEFAULT", Option: "state_path", Value: abs, From: "--state-dir"})
	}
	if s.database != "" {
		out.Flags = append(out.Flags, config.Setting{Section: "database", Option: "connection", Value: s.database, From: "--" + name})
	}
	return out, nil
}
