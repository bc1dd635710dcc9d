package program

import (
	"context"
	_ "embed"
	"encoding/json"
	"io"
	"os/exec"
	"salvor/test/debian"
	"salvor/test/must"
	"strings"
	"testing"
	"time"
)

//go:embed client.py
var clientScript string

// clientBound ends a client that hangs.
const clientBound = 5 * time.Minute

// OpenStack is Debian's openstack command, in one process for all that it is told.
type OpenStack struct {
	in  *json.Encoder
	out *json.Decoder
}

// CommandResult is what a command came to.
type CommandResult struct {
	Status   int
	Out, Err string
}

// NewOpenStack starts the client for the identity service at url, as a user of a project who gives any password. env
// goes over that; complaints are the process's own.
func NewOpenStack(t testing.TB, url string, complaints io.Writer, env ...string) *OpenStack {
	t.Helper()
	debian.File(t, "/usr/lib/python3/dist-packages/openstackclient", "python3-openstackclient")
	ctx, cancel := context.WithTimeout(context.Background(), clientBound)
	dir := t.TempDir()
	cmd := exec.CommandContext(ctx, "/usr/bin/python3", "-c", clientScript)
	cmd.Env = append([]string{
		"PATH=/usr/bin:/bin", "HOME=" + dir, "LC_ALL=C.UTF-8", "PYTHONWARNINGS=ignore", "PYTHONDONTWRITEBYTECODE=1", "no_proxy=*",
		"OS_AUTH_TYPE=password", "OS_AUTH_URL=" + url, "OS_IDENTITY_API_VERSION=3", "OS_PASSWORD=any", "OS_USER_DOMAIN_ID=default", "OS_PROJECT_DOMAIN_ID=default",
	}, env...)
	cmd.Dir, cmd.Stderr, cmd.WaitDelay = dir, complaints, 5*time.Second
	in := must.Get(cmd.StdinPipe())(t)
	out := must.Get(cmd.StdoutPipe())(t)
	must.OK(t, cmd.Start())
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
		cancel()
	})
	return &OpenStack{json.NewEncoder(in), json.NewDecoder(out)}
}

// Run runs a command; that it failed is in its status.
func (c *OpenStack) Run(t testing.TB, words ...string) CommandResult {
	t.Helper()
	if err := c.in.Encode(words); err != nil {
		t.Fatalf("openstack %s: %v", strings.Join(words, " "), err)
	}
	var said CommandResult
	if err := c.out.Decode(&said); err != nil {
		t.Fatalf("openstack %s: no answer: %v", strings.Join(words, " "), err)
	}
	return said
}
