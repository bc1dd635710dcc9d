// Package script runs the stories: what users do, told as scripts over the real binary.
package script

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"salvor/test/program"
)

// TestStories runs each file of this folder as a story of its own. Beside testscript's
// commands a story has:
//
//	serve [FILE]   start a server with a configuration file of the story; SALVOR_URL names it
//	crash, restart end it like kill -9; start it again on the same state
//	absent TEXT    the text is nowhere in the server's log and state directory
//	vmhost NAME bridge=NAME store=NAME:DIR...
//	               start the agent of a simulated VM host, again if it runs; vmhost -stop NAME ends it
//	eventually RE COMMAND...
//	               run a command until it succeeds and prints what the regular expression finds
//	golden FILE    the last command printed what is in the file, where UUID stands for every UUID
//	sql STATEMENT  change the server's database, for what no command can bring about
func TestStories(t *testing.T) {
	bin := filepath.Dir(program.Path(t, "salvor"))
	testscript.Run(t, testscript.Params{
		Dir: ".",
		Setup: func(e *testscript.Env) error {
			e.Setenv("PATH", bin+string(os.PathListSeparator)+e.Getenv("PATH"))
			e.Setenv("XDG_STATE_HOME", e.WorkDir)
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"serve": serve, "crash": crash, "restart": restart, "absent": absent,
			"vmhost": vmhost, "eventually": eventually, "golden": golden, "sql": statement,
		},
	})
}

// servers are the running servers by story.
var servers sync.Map

func serve(ts *testscript.TestScript, neg bool, args []string) {
	config := ""
	if len(args) > 0 {
		config = strings.ReplaceAll(ts.ReadFile(args[0]), "$WORK", ts.Getenv("WORK"))
	}
	s, err := program.Launch(ts.MkAbs("state"), config)
	ts.Check(err)
	ts.Defer(s.Stop)
	servers.Store(ts, s)
	ts.Setenv("SALVOR_URL", s.URL)
}

func running(ts *testscript.TestScript) *program.Server {
	s, ok := servers.Load(ts)
	if !ok {
		ts.Fatalf("no server runs: say serve first")
	}
	return s.(*program.Server)
}

func crash(ts *testscript.TestScript, neg bool, args []string) { running(ts).Kill() }

func restart(ts *testscript.TestScript, neg bool, args []string) { ts.Check(running(ts).Relaunch()) }

func absent(ts *testscript.TestScript, neg bool, args []string) {
	s := running(ts)
	if strings.Contains(s.Log(), args[0]) {
		ts.Fatalf("the server's log holds %q", args[0])
	}
	err := filepath.WalkDir(s.State, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if err == nil && strings.Contains(string(b), args[0]) {
			ts.Fatalf("%s holds %q", path, args[0])
		}
		return err
	})
	ts.Check(err)
}
