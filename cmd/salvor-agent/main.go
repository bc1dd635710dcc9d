// Command salvor-agent is the agent of the rescue ramdisk. The ramdisk's init starts
// it for each part of a rescue: "salvor-agent" until the machine is handed over, then "salvor-agent
// network" for the tenant's network. "salvor-agent session" then serves the control plane while the machine is in rescue.
// In a virtual machine that is rescued over a channel "salvor-agent unlock" stands in for the first. A person runs "salvor-agent examine", which says what is wrong with the machine's disks. It ends with 0 when
// it did its work.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"salvor/agent"
	"salvor/version"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	if len(os.Args) == 2 && os.Args[1] == agent.SandboxCommand {
		stop()
		os.Exit(agent.RunInSystem(os.Stderr))
	}
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

const usage = `salvor-agent [run] [--root DIR] [--cmdline FILE] [--listen ADDRESS] [--mac MAC,...]
salvor-agent network [--root DIR]
salvor-agent volumes [--root DIR]
salvor-agent unlock [--root DIR]
salvor-agent session [--root DIR]
salvor-agent examine [--luks-key-file [UUID=]FILE]... [--time-limit 10m] [--only-read]
salvor-agent version
`

// options are the flags of both words.
type options struct {
	root     string
	cmdline  string
	listen   string
	macs     string
	onlyRead bool
	debug    bool

	keyFiles []string
	limit    time.Duration
}

// run gives the exit status: 0 done, 1 failed, 2 called wrongly. result takes the findings of examine, out everything else.
func run(ctx context.Context, args []string, result, out io.Writer) int {
	word := "run"
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		word, args = args[0], args[1:]
	}
	o, err := parse(word, args, out)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		return 2
	}
	log := newLog(out, o.debug)
	switch word {
	case "run":
		err = serve(ctx, o, log)
	case "network":
		err = agent.Network(ctx, o.root, log)
	case "volumes":
		err = agent.Volumes(ctx, o.root, log)
	case "session":
		err = agent.Session{Root: o.root, Version: version.Release, Log: log}.Run(ctx)
	case "unlock":
		err = (&agent.Unlock{Root: o.root, Version: version.Release, Log: log}).Run(ctx)
	case "examine":
		err = agent.Examination{KeyFiles: o.keyFiles, Limit: o.limit, OnlyRead: o.onlyRead, Log: log}.Run(ctx, result)
	case "version":
		fmt.Fprintln(out, "salvor-agent", version.Current())
	default:
		fmt.Fprint(out, usage)
		return 2
	}
	if err != nil {
		log.Error("salvor-agent ends", "doing", word, "error", err)
		return 1
	}
	return 0
}

func parse(word string, args []string, out io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("salvor-agent "+word, flag.ContinueOnError)
	flags.SetOutput(out)
	flags.Usage = func() { fmt.Fprint(out, usage) }
	flags.StringVar(&o.root, "root", "", "work below this directory instead of in the initramfs")
	flags.BoolVar(&o.debug, "debug", false, "log more")
	if word == "run" {
		flags.StringVar(&o.cmdline, "cmdline", "/proc/cmdline", "read the kernel command line from this file")
		flags.StringVar(&o.listen, "listen", "", "take commands here (default :9999)")
		flags.StringVar(&o.macs, "mac", "", "look up these MACs instead of those of the NICs")
	}
	if word == "examine" {
		flags.Func("luks-key-file", "open LUKS containers with the key in this file, or the one of a UUID with UUID=FILE; may be repeated", func(text string) error {
			o.keyFiles = append(o.keyFiles, text)
			return nil
		})
		flags.BoolVar(&o.onlyRead, "only-read", false, "run no program of the examined systems, such as sshd -t")
		flags.DurationVar(&o.limit, "time-limit", 10*time.Minute, "end the examination after this time")
	}
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		fmt.Fprint(out, usage)
		return o, errors.New("too many words")
	}
	return o, nil
}

func newLog(out io.Writer, debug bool) *slog.Logger {
	level := slog.LevelInfo
	if debug {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: level}))
}

func serve(ctx context.Context, o options, log *slog.Logger) error {
	line, err := os.ReadFile(o.cmdline)
	if err != nil {
		return fmt.Errorf("read the kernel command line: %w", err)
	}
	var macs []string
	if o.macs != "" {
		macs = strings.Split(o.macs, ",")
	}
	a, err := agent.New(agent.Config{
		Root: o.root, CommandLine: string(line), Listen: o.listen, MACs: macs, Version: version.Release, Log: log,
	})
	if err != nil {
		return err
	}
	return a.Run(ctx)
}
