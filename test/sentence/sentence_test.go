package sentence

import (
	"slices"
	"strings"
	"testing"
)

func TestSentences(t *testing.T) {
	page := "# What it is\n\nOne [link](a.md#b) and `code. Of it`.\nTwo is\nlong.\n\n- an item\n- Who acts is last\n\n| a table | of words |\n\n```\ncode\n```\n"
	if got, want := OfPage(page), []string{"One link and CODE", "Two is long.", "an item", "Who acts is last"}; !slices.Equal(got, want) {
		t.Errorf("a page: %q, want %q", got, want)
	}
	if got, want := OfText("One (in brackets.) Two.\n  a table of values\n\nThree"), []string{"One (in brackets", "Two.", "Three"}; !slices.Equal(got, want) {
		t.Errorf("a text: %q, want %q", got, want)
	}
}

func TestReadTwice(t *testing.T) {
	if IsLong(strings.Repeat("word ", MostWords)) || !IsLong(strings.Repeat("word ", MostWords+1)) {
		t.Error("the border of a long sentence")
	}
	for sentence, want := range map[string]bool{"Of these, three": true, "What it does is this": true, "What does it do?": false, "Whoeverness": false, "It is what it is": false} {
		if IsHeadless(sentence) != want {
			t.Errorf("%q is headless: %t", sentence, !want)
		}
	}
}
