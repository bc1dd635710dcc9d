package loose

import (
	"strings"
	"testing"
)

// TestCountValues: the count is that of the parser, without a parse, and stops behind the bound.
func TestCountValues(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`{}`, `[]`, `[[],[]]`, `{"a":[1,-2.5e3,null,true,"x,y:[{"],"b":{"c":"\"}"}}`, `7`, `"a:b"`, `[{"a":1},{"b":[{}]}]`, " [ 1 , 2 ]\n", `{"a":{"a":{"a":[]}}}`,
	} {
		p := parser{text: []byte(text), left: MaxValues}
		if _, ok := p.value(0); !ok {
			t.Fatalf("%s: the parser refuses it", text)
		}
		if got, want := CountValues([]byte(text), MaxValues), MaxValues-p.left; got != want {
			t.Errorf("CountValues(%s): want %d, got %d", text, want, got)
		}
	}
	bomb := []byte(`{"a":[` + strings.Repeat("[],", 8<<20) + `[]]}`)
	if got := CountValues(bomb, 1000); got != 1001 {
		t.Errorf("a bomb of 8 million lists, bound 1000: want 1001, got %d", got)
	}
	for _, text := range []string{"", `"`, `"\`, `{"a`, "::::", "\x00\xff", `[1,`} {
		CountValues([]byte(text), 10) // must not panic
	}
}
