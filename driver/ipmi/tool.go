package ipmi

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"salvor/driver"
	"salvor/problem"
	"salvor/secret"
)

// ipmitoolRunner speaks through the program ipmitool, one run for each command.
type ipmitoolRunner struct {
	conf    ipmiSettings
	program string
	cipher  int // index of the cipher suite that worked, or is tried
}

// passwordFile is what ipmitool -f reads the password from: a pipe from us. Neither its arguments nor its environment tell it.
const passwordFile = "/dev/fd/3"

// maxOutput bounds what is kept of the program's words.
const maxOutput = 16 << 10

func (t *ipmitoolRunner) send(ctx context.Context, netFn, command byte, data ...byte) ([]byte, error) {
	for {
		answer, err := t.run(ctx, netFn, command, data...)
		if !errors.Is(err, errCipher) || t.cipher+1 >= len(t.conf.ciphers) {
			return answer, err
		}
		t.cipher++
	}
}

var errCipher = errors.New("no matching cipher suite")

func (t *ipmitoolRunner) run(ctx context.Context, netFn, command byte, data ...byte) ([]byte, error) {
	if err := driver.CheckLease(ctx); err != nil {
		return nil, driver.Trouble(err)
	}
	args := []string{"-v", "-I", "lanplus", "-H", t.conf.host, "-p", strconv.Itoa(t.conf.port), "-L", t.conf.level, "-C", strconv.Itoa(t.conf.ciphers[t.cipher]), "-f", passwordFile}
	if t.conf.username != "" {
		args = append(args, "-U", t.conf.username)
	}
	if !t.conf.bmcKey.Empty() {
		args = append(args, "-K")
	}
	args = append(args, "raw", fmt.Sprintf("0x%02x", netFn), fmt.Sprintf("0x%02x", command))
	for _, b := range data {
		args = append(args, fmt.Sprintf("0x%02x", b))
	}
	program := t.program
	if program == "" {
		program = "ipmitool"
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/", "LC_ALL=C"}
	key, err := bmcKeyBytes(t.conf)
	if err != nil {
		return nil, err
	}
	if len(key) > 0 {
		// The environment of a process is readable by its user alone; its arguments are not.
		cmd.Env = append(cmd.Env, "IPMI_KGKEY="+string(key))
	}
	password, err := pipeOf(t.conf.password)
	if err != nil {
		return nil, fmt.Errorf("ipmitool: %w", err)
	}
	defer password.Close()
	cmd.ExtraFiles = []*os.File{password}
	cmd.WaitDelay = time.Second
	var out, output limitedBuffer
	cmd.Stdout, cmd.Stderr = &out, &output
	if err := cmd.Run(); err != nil {
		return nil, t.fault(ctx, err, output.String(), netFn, command)
	}
	answer, err := hex.DecodeString(strings.Join(strings.Fields(out.String()), ""))
	if err != nil {
		return nil, problem.Unavailablef("ipmitool printed no bytes")
	}
	return answer, nil
}

// pipeOf is a pipe from which a password is read once; it is shorter than what a pipe holds.
func pipeOf(password secret.Value) (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	_, err = w.WriteString(password.Reveal() + "\n")
	if err = errors.Join(err, w.Close()); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

var responseCode = regexp.MustCompile(`rsp=0x([0-9a-fA-F]{1,2})\b`)

// fault gives a failure of the program its kind, by its words: it has one exit code.
func (t *ipmitoolRunner) fault(ctx context.Context, err error, output string, netFn, command byte) error {
	if m := responseCode.FindStringSubmatch(output); m != nil {
		code, _ := strconv.ParseUint(m[1], 16, 8)
		return classifyCompletionCode(netFn, command, byte(code))
	}
	switch {
	case ctx.Err() != nil:
		return driver.Trouble(ctx.Err())
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, os.ErrNotExist):
		return problem.Invalidf("[ipmi]client is ipmitool, but there is no such program on this conductor")
	}
	if refusal := toolRefusal(output, t.conf); refusal != nil {
		return refusal
	}
	if strings.Contains(output, "Address lookup for") {
		return problem.Tries(driver.UnknownNameTries, problem.Unavailablef("nobody knows the name %s; is it spelled right? ipmitool: %s", t.conf.host, problem.Quote(driver.Sanitize(output, t.conf.password))))
	}
	return problem.Unavailablef("ipmitool: %s", problem.Quote(driver.Sanitize(output, t.conf.password)))
}

// limitedBuffer keeps the beginning of what is written to it.
type limitedBuffer struct{ bytes.Buffer }

func (c *limitedBuffer) Write(p []byte) (int, error) {
	if room := maxOutput - c.Len(); room > 0 {
		c.Buffer.Write(p[:min(len(p), room)])
	}
	return len(p), nil
}
