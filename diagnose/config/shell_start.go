package config

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"salvor/diagnose"
)

// ShellEnd is a line of a start file at which a shell ends.
type ShellEnd struct {
	File string
	Line int
	Text string
	// Interactive, Commands: the line ends a shell at a terminal, or one that runs a command of ssh.
	Interactive, Commands bool
}

// maxStartLines bounds the lines of one start file.
const maxStartLines = 2000

var (
	shellWord     = regexp.MustCompile(`[^\s;&|()]+`)
	shellFunction = regexp.MustCompile(`^(function\s+\S+|[A-Za-z_][\w-]*\s*\(\))`)
	shellQuoted   = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|'[^']*'`)
	shellHeredoc  = regexp.MustCompile(`<<-?\s*["']?(\w+)`)
	shellFlow     = regexp.MustCompile(`(^|[;&|{\s])(return|exit|logout|exec)\b`)
	shellTerminal = regexp.MustCompile(`\$-|\bPS1\b|\btty -s|-t [01]\b`)
	// shellChain is a condition, an operator and the end of the shell: command -v direnv >/dev/null || exit 0.
	shellChain = regexp.MustCompile(`^(.+?)\s*(\|\||&&)\s*(?:\{\s*)?(exit|logout|return)\b[^;&|]*;?\s*\}?$`)
	shellTest  = regexp.MustCompile(`^(?:\[{1,2}|test)\s+(!\s+)?-([efxdrs])\s+(\S+)(?:\s+\]{1,2})?$`)
	// shellPath is what changes where programs are found, or may define functions and aliases.
	shellPath = regexp.MustCompile(`\bPATH\+?=|(^|[;&|]\s*|\bthen\s+)(\.|source|eval|alias)\s`)
	shellFind = regexp.MustCompile(`^(?:command\s+-[vV]|which|type(?:\s+-[pPt])?|hash)\s+([\w.+-]+)(?:\s+[12&]?>.*)?$`)
)

// shellBuiltins are commands that a shell has in itself.
var shellBuiltins = strings.Fields("alias bg bind builtin cd command compgen complete declare dirs disown echo enable eval exec exit export false fc fg getopts hash help history jobs kill " +
	"let local logout mapfile popd printf pushd pwd read readonly return set shift shopt source suspend test times trap true type typeset ulimit umask unalias unset wait")

// FindShellEnd returns the first line of a start file at which every shell that reads the file ends, or every shell of one kind; nil without one. Only
// lines outside of blocks and functions count, with no condition or one that the files of the system answer. A line that is not understood ends the
// search.
func FindShellEnd(tree *diagnose.Tree, file, home string) *ShellEnd {
	lines := tree.Lines(file)
	depth, inFunction, atTerminals, terminator := 0, false, false, ""
	openBlock, usualPath := "", true // the first line of the outermost block; no line changes where programs are found
	for i := 0; i < len(lines) && i < maxStartLines; i++ {
		at := i + 1
		if terminator != "" {
			if strings.TrimSpace(lines[i]) == terminator {
				terminator = ""
			}
			continue
		}
		var line string
		line, i = JoinLines(lines, i, strings.TrimSpace)
		plain := shellQuoted.ReplaceAllString(line, "Q")
		if strings.ContainsAny(plain, "\"'`") && !strings.HasPrefix(plain, "#") {
			return nil // a quotation goes on in the next line
		}
		if hash := strings.Index(" "+plain, " #"); hash >= 0 {
			plain = strings.TrimSpace(plain[:hash])
			line = strings.TrimSpace(line[:strings.LastIndex(" "+line, " #")])
		}
		if plain == "" {
			continue
		}
		if m := shellHeredoc.FindStringSubmatch(plain); m != nil && !strings.Contains(plain, "<<<") {
			terminator = m[1]
		}
		if depth == 0 {
			openBlock, inFunction = plain, shellFunction.MatchString(plain)
			end, goesOn := shellEndOf(tree, line, plain, home, &atTerminals, usualPath)
			if end {
				word := shellWord.FindString(plain)
				return &ShellEnd{File: file, Line: at, Text: line, Interactive: word != "exec", Commands: !atTerminals}
			}
			if !goesOn {
				return nil
			}
		} else if !inFunction && shellFlow.MatchString(plain) {
			if !shellTerminal.MatchString(openBlock) && !shellTerminal.MatchString(plain) {
				return nil // a condition that is not known may end the file here
			}
			atTerminals = true
		}
		usualPath = usualPath && !shellPath.MatchString(plain)
		depth = max(depth+blockSteps(plain), 0)
	}
	return nil
}

// shellSeparator separates the commands of a line.
var shellSeparator = regexp.MustCompile(`[;&|()]+`)

// blockSteps is by how many blocks a line goes down, or up where the number is below 0. Only the first word of a command opens or closes a block.
func blockSteps(plain string) int {
	steps := 0
	for _, command := range shellSeparator.Split(plain, -1) {
		words := strings.Fields(command)
		if len(words) > 1 && words[0] == "function" && words[len(words)-1] == "{" {
			steps++
		}
		for begins := true; begins && len(words) > 0; words = words[1:] {
			switch words[0] {
			case "if", "case", "for", "while", "until", "select", "{":
				steps++
			case "fi", "esac", "done", "}":
				steps--
			}
			begins = slices.Contains([]string{"then", "do", "else", "{", "!"}, words[0])
		}
	}
	return steps
}

// shellEndOf judges one line outside of blocks: whether the shell ends there, and whether the search goes on behind the line.
func shellEndOf(tree *diagnose.Tree, line, plain, home string, atTerminals *bool, usualPath bool) (ends, goesOn bool) {
	if m := shellChain.FindStringSubmatch(line); m != nil {
		holds, known := shellCondition(tree, strings.TrimSpace(m[1]), home)
		known = known && (holds || usualPath || !shellFind.MatchString(strings.TrimSpace(m[1])))
		switch {
		case !known && m[3] == "return" && shellTerminal.MatchString(m[1]):
			*atTerminals = true
			return false, true
		case !known:
			return false, false
		case holds != (m[2] == "&&"):
			return false, true
		}
		return m[3] != "return", false
	}
	words := shellWord.FindAllString(plain, -1)
	if len(words) == 0 {
		return false, true
	}
	switch words[0] {
	case "exit", "logout":
		return true, false
	case "return":
		return false, false
	case "set":
		return false, !strings.Contains(plain, "-e") && !strings.Contains(plain, "errexit")
	case "exec":
		if len(words) < 2 || strings.ContainsAny(words[1], "<>$-Q") {
			return false, true
		}
		return !hasProgram(tree, words[1]) && (usualPath || path.IsAbs(words[1])), false
	}
	isBlock := slices.Contains([]string{"if", "case", "for", "while", "until", "select", "{"}, words[0])
	return false, isBlock || shellFunction.MatchString(plain) || !shellFlow.MatchString(plain)
}

// shellCondition evaluates a test of a file, or the search for a program. known is false for any other condition.
func shellCondition(tree *diagnose.Tree, text, home string) (holds, known bool) {
	if m := shellFind.FindStringSubmatch(text); m != nil {
		return hasProgram(tree, m[1]), true
	}
	m := shellTest.FindStringSubmatch(text)
	if m == nil {
		return false, false
	}
	name := strings.Trim(m[3], `"'`)
	for _, prefix := range []string{"$HOME/", "${HOME}/", "~/"} {
		if rest, found := strings.CutPrefix(name, prefix); found {
			name = path.Join(home, rest)
		}
	}
	if !path.IsAbs(name) || strings.ContainsAny(name, "$*?[") || slices.ContainsFunc([]string{"/run", "/proc", "/sys", "/dev", "/tmp", "/var/run"}, func(folder string) bool {
		return strings.HasPrefix(name, folder+"/")
	}) {
		return false, false
	}
	info, err := tree.Stat(name)
	if err != nil && !IsNotExist(err) {
		return false, false
	}
	switch {
	case err != nil:
	case m[2] == "f":
		holds = info.Mode().IsRegular()
	case m[2] == "d":
		holds = info.IsDir()
	case m[2] == "x":
		holds = info.Mode()&0o111 != 0
	case m[2] == "s":
		holds = info.Size() > 0
	default:
		holds = true
	}
	return holds != (m[1] != ""), true
}

// hasProgram says whether a shell finds a program, by its path or in the folders of programs.
func hasProgram(tree *diagnose.Tree, name string) bool {
	if strings.Contains(name, "/") {
		return !path.IsAbs(name) || tree.Exists(name)
	}
	if slices.Contains(shellBuiltins, name) {
		return true
	}
	return slices.ContainsFunc([]string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/local/games", "/usr/games", "/snap/bin"}, func(folder string) bool {
		return tree.Exists(path.Join(folder, name))
	})
}

// LostCommand is a command of a script that cannot be run, so that the script ends with an error.
type LostCommand struct {
	Line      int
	Text, Why string
}

// shellReserved are words of the shell that begin no program.
var shellReserved = strings.Fields("if then elif else fi for while until do done case esac in select function time coproc ! [[")

// FindLostCommand returns the command because of which a script ends with an error for certain: its interpreter is lost, or a command outside of blocks
// is, and the script ends at an error or at this command. It returns nil where no such command is known.
func FindLostCommand(tree *diagnose.Tree, file string) *LostCommand {
	lines := tree.Lines(file)
	if len(lines) == 0 {
		return nil
	}
	head, isScript := strings.CutPrefix(lines[0], "#!")
	if !isScript {
		return nil // a program, or a file that the shell of run-parts reads in its own way
	}
	interpreter := strings.Fields(head)
	if len(interpreter) == 0 {
		return nil
	}
	if path.IsAbs(interpreter[0]) && !tree.Exists(interpreter[0]) {
		return &LostCommand{1, lines[0], "its interpreter " + interpreter[0] + " does not exist"}
	}
	if !slices.Contains([]string{"sh", "bash", "dash"}, path.Base(interpreter[0])) {
		return nil
	}
	stops := len(interpreter) > 1 && strings.HasPrefix(interpreter[1], "-") && strings.Contains(interpreter[1], "e")
	var last *LostCommand
	for i := 1; i < len(lines) && i < maxStartLines; i++ {
		at := i + 1
		var line string
		line, i = JoinLines(lines, i, strings.TrimSpace)
		words := strings.Fields(line)
		if len(words) == 0 || words[0][0] == '#' {
			continue
		}
		isPlain := !strings.ContainsAny(line, "|&;(){}`\"'$") && shellHeredoc.FindString(line) == ""
		switch {
		case words[0] == "set" && len(words) == 2 && strings.HasPrefix(words[1], "-") && strings.Contains(words[1], "e"):
			stops, last = true, nil
			continue
		case !isPlain || slices.Contains(shellReserved, words[0]) || slices.Contains(shellBuiltins, words[0]) && words[0] != "true" && words[0] != "echo" && words[0] != "umask" && words[0] != "cd":
			return nil // what is not understood may end the script, or define a command
		case strings.HasPrefix(words[0], "PATH="):
			return nil
		case strings.Contains(words[0], "="):
			continue
		}
		if why := LostProgramOf(tree, line); why != "" {
			last = &LostCommand{at, line, why}
			if stops {
				return last
			}
			continue
		}
		last = nil
	}
	return last
}

// shellInput is a file that a command reads: iptables-restore </etc/iptables.rules.
var shellInput = regexp.MustCompile(`(?:^|[^<])<\s*(/[^\s;&|<>]+)`)

// LostProgramOf says why a plain command line cannot be run: its program or the file that it reads does not exist; empty where both may be there.
func LostProgramOf(tree *diagnose.Tree, line string) string {
	words := strings.Fields(line)
	if len(words) == 0 || strings.ContainsAny(line, "|&;(){}`$%") || strings.ContainsAny(words[0], `="'[!`) || words[0] == ":" || words[0] == "." || slices.Contains(shellReserved, words[0]) {
		return ""
	}
	if !hasProgram(tree, words[0]) {
		return words[0] + " does not exist"
	}
	if m := shellInput.FindStringSubmatch(line); m != nil && !strings.ContainsAny(m[1], "*?\"'") {
		if _, err := tree.Stat(m[1]); IsNotExist(err) && !strings.HasPrefix(m[1], "/run/") && !strings.HasPrefix(m[1], "/proc/") && !strings.HasPrefix(m[1], "/dev/") {
			return "the file " + m[1] + ", which it reads, does not exist"
		}
	}
	return ""
}
