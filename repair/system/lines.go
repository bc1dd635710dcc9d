package system

import (
	"strings"
	"unicode"
)

// splitText cuts a text into lines that keep their ends.
func splitText(text string) []string {
	lines := strings.SplitAfter(text, "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// cutEnd splits a line from its end of line.
func cutEnd(line string) (text, end string) {
	text = strings.TrimRight(line, "\r\n")
	return text, line[len(text):]
}

// editLines changes the lines of a text, which are given without their ends.
func editLines(text string, change func(line string) string) string {
	lines := splitText(text)
	for i := range lines {
		line, end := cutEnd(lines[i])
		lines[i] = change(line) + end
	}
	return strings.Join(lines, "")
}

// replaceLine changes one line of a text, counted from 1, and nothing else. A line that the text does not have changes nothing.
func replaceLine(text string, number int, change func(line string) string) string {
	lines := splitText(text)
	if number < 1 || number > len(lines) {
		return text
	}
	line, end := cutEnd(lines[number-1])
	lines[number-1] = change(line) + end
	return strings.Join(lines, "")
}

// commentLines turns lines into comments, with those that continue them behind a backslash.
func commentLines(text string, numbers ...int) string {
	lines := splitText(text)
	for _, number := range numbers {
		for i := number - 1; i >= 0 && i < len(lines); i++ {
			line, end := cutEnd(lines[i])
			lines[i] = commentLine(line) + end
			if !strings.HasSuffix(strings.TrimSpace(line), `\`) {
				break
			}
		}
	}
	return strings.Join(lines, "")
}

// commentLine turns a line into a comment. A backslash at its end would make the next line a part of the comment.
func commentLine(line string) string {
	trimmed := strings.TrimSpace(line)
	if trimmed == "" || strings.HasPrefix(trimmed, "# ") {
		return line
	}
	out := "# " + line
	for strings.HasSuffix(strings.TrimSpace(out), `\`) {
		out = strings.TrimSuffix(strings.TrimSpace(out), `\`)
	}
	return out
}

// appendLine adds a line at the end of a text.
func appendLine(text, line string) string {
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return text + line + "\n"
}

// insertBefore adds a line before one, counted from 1.
func insertBefore(text string, number int, line string) string {
	lines := splitText(text)
	if number < 1 || number > len(lines) {
		return appendLine(text, line)
	}
	return strings.Join(lines[:number-1], "") + line + "\n" + strings.Join(lines[number-1:], "")
}

// fieldSpans returns where the fields of a line begin and end, split as strings.Fields does.
func fieldSpans(line string) [][2]int {
	var out [][2]int
	start := -1
	for i, r := range line {
		switch {
		case unicode.IsSpace(r) && start >= 0:
			out = append(out, [2]int{start, i})
			start = -1
		case !unicode.IsSpace(r) && start < 0:
			start = i
		}
	}
	if start >= 0 {
		out = append(out, [2]int{start, len(line)})
	}
	return out
}

// editField changes one field of a line, counted from 0, and leaves the blanks as they are. A field behind the last one is added.
func editField(line string, index int, change func(field string) string) string {
	spans := fieldSpans(line)
	switch {
	case index < len(spans):
		at := spans[index]
		return line[:at[0]] + change(line[at[0]:at[1]]) + line[at[1]:]
	case index == len(spans):
		return strings.TrimRight(line, " \t") + " " + change("")
	}
	return line
}

// editColumn changes one column of a line such as those of /etc/passwd, counted from 0.
func editColumn(line string, index int, text string) string {
	columns := strings.Split(line, ":")
	if index < len(columns) {
		columns[index] = text
	}
	return strings.Join(columns, ":")
}

// isNamePart says whether a byte may belong to a name of an interface or to an address.
func isNamePart(b byte) bool {
	return b == '_' || b == '-' || b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z'
}

// replaceName replaces a name outside of comments where it stands by itself: eth0 in eth0.5 and in eth0:, not in veth0 or eth01. The case of letters
// counts unless fold is set.
func replaceName(text, from, to string, fold bool) string {
	if from == "" {
		return text
	}
	lines := splitText(text)
	for i, line := range lines {
		if !strings.HasPrefix(strings.TrimSpace(line), "#") {
			lines[i] = replaceNameInLine(line, from, to, fold)
		}
	}
	return strings.Join(lines, "")
}

func replaceNameInLine(line, from, to string, fold bool) string {
	var out strings.Builder
	for i := 0; i < len(line); {
		end := i + len(from)
		same := end <= len(line) && (line[i:end] == from || fold && strings.EqualFold(line[i:end], from))
		before := i == 0 || !isNamePart(line[i-1]) && line[i-1] != '.' && line[i-1] != ':'
		if i > 0 && line[i-1] == ':' { // a port of JSON or YAML without blanks, but no part of an address
			before = !fold
		}
		if same && before && (end == len(line) || !isNamePart(line[end]) && !(fold && line[end] == ':')) {
			out.WriteString(to)
			i = end
			continue
		}
		out.WriteByte(line[i])
		i++
	}
	return out.String()
}
