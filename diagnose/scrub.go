package diagnose

import (
	"regexp"
	"slices"
	"strings"
)

// Bounds of scrub: a shorter word is no secret that matters, and longer files are not read again.
const (
	leastSecret  = 4
	maxScrubbed  = 256 << 10
	maxScrubbing = 64 // files of one examination
)

// lineWord is a word of a line, as a rule may quote it.
var lineWord = regexp.MustCompile(`[A-Za-z0-9/+_.-]+`)

// scrub takes the secrets of a line out of the texts of a finding that quotes the line. The evidence of the finding shows the line by Line,
// which masks words by their place. A title that quotes one of these words alone shows it without the place, so no pattern finds it there.
func scrub(files *Tree, findings []Finding) {
	if files == nil {
		return
	}
	read := map[string][]string{}
	linesOf := func(name string) []string {
		lines, known := read[name]
		if !known && len(read) < maxScrubbing {
			content, err := files.ReadAtMost(name, maxScrubbed)
			if err == nil {
				lines = strings.Split(string(content), "\n")
			}
			read[name] = lines
		}
		return lines
	}
	for i := range findings {
		f := &findings[i]
		for _, e := range f.Evidence {
			if lines := linesOf(e.Path); e.Kind == FromFile && e.Line > 0 && e.Line <= len(lines) {
				f.maskWords(maskedWords(e.Path, lines[e.Line-1]))
			}
		}
	}
}

// maskedWords are the words of a line that Line masks.
func maskedWords(place, line string) []string {
	line = shorten(line, maxExcerpt) // what lies behind is cut, and not masked
	words := hiddenWords(line, Line(place, line))
	if place == nameServices { // "passwd: fiels" names a service that is misspelt
		words = slices.DeleteFunc(words, func(word string) bool { return strings.Trim(word, "abcdefghijklmnopqrstuvwxyz_") == "" })
	}
	return words
}

// nameServices is a file whose lines name services behind words such as passwd. A name of a service is of letters only.
const nameServices = "/etc/nsswitch.conf"

// hiddenWords are the words of a text that its masked form no longer has.
func hiddenWords(text, masked string) (words []string) {
	if !strings.Contains(masked, Masked) {
		return nil
	}
	for _, word := range lineWord.FindAllString(text, -1) {
		if len(word) >= leastSecret && !strings.Contains(masked, word) {
			words = append(words, word)
		}
	}
	return words
}

// maskWords masks words in the sentences of a finding and in its evidence, which may be a sentence too.
func (f *Finding) maskWords(words []string) {
	f.Evidence = slices.Clone(f.Evidence)
	texts := []*string{&f.Title, &f.ByHand}
	if f.Repair != nil {
		r := *f.Repair
		f.Repair = &r
		texts = append(texts, &r.Summary, &r.Loses)
	}
	for _, word := range words {
		for _, text := range texts {
			*text = strings.ReplaceAll(*text, word, Masked)
		}
		for i := range f.Evidence {
			f.Evidence[i].Text = strings.ReplaceAll(f.Evidence[i].Text, word, Masked)
		}
	}
}
