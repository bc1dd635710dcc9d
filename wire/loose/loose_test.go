package loose_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"salvor/wire/loose"
)

type link struct {
	ID string `json:"@odata.id"`
}

type status struct{ Health, State string }

// even is a whole number that decodes itself and refuses odd ones.
type even int

func (e *even) UnmarshalJSON(text []byte) error {
	var i int
	if err := json.Unmarshal(text, &i); err != nil {
		return err
	}
	if i%2 != 0 {
		return fmt.Errorf("%d is odd", i)
	}
	*e = even(i)
	return nil
}

type head struct {
	Name string
	Kind string `json:"kind"`
}

type system struct {
	head
	Model    string
	Power    string `json:"PowerState"`
	Cores    int
	Small    int8
	Bytes    uint64
	Load     float64
	Inserted *bool
	Speed    *int
	Status   status
	Boot     *status
	Members  []link
	Speeds   []int
	Words    []string
	Pair     [2]int
	Attrs    map[string]any
	Counts   map[string]int
	Raw      json.RawMessage
	Own      even
	At       time.Time
	Number   json.Number
	Any      any
	Hidden   string `json:"-"`
	Data     []byte
}

func yes() *bool { b := true; return &b }

func number(i int) *int { return &i }

// TestDecode: each value is decoded by itself, is converted where its meaning is plain, and is left unset and named otherwise.
func TestDecode(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text string
		want system
		odd  string // joined by blanks
	}{
		{`{}`, system{}, ""},
		{`{"Name":"a","kind":"k","Model":"m","PowerState":"On","Cores":3}`, system{head: head{"a", "k"}, Model: "m", Power: "On", Cores: 3}, ""},
		{`{"name":"a","POWERSTATE":"On"}`, system{head: head{Name: "a"}, Power: "On"}, ""},
		{`{"Cores":1,"Cores":2}`, system{Cores: 2}, ""},
		{`{"Hidden":"x","-":"x","Unknown":{"a":[1]}}`, system{}, ""},
		// Text and numbers.
		{`{"Model":4029,"Cores":" 16 ","Load":"0.5","Bytes":"18446744073709551615"}`, system{Model: "4029", Cores: 16, Load: 0.5, Bytes: 1<<64 - 1}, ""},
		{`{"Cores":16.0,"Small":"1e2","Bytes":2E3}`, system{Cores: 16, Small: 100, Bytes: 2000}, ""},
		{`{"Cores":16.5,"Small":300,"Bytes":-1,"Load":1e999}`, system{}, "Cores Small Bytes Load"},
		{`{"Cores":"16 GB","Load":"Inf","Bytes":"0x10","Small":"1_0","Number":"x"}`, system{}, "Cores Load Bytes Small Number"},
		{`{"Model":true,"Number":"17","Any":5}`, system{Model: "true", Number: "17", Any: 5.0}, ""},
		{`{"Cores":9007199254740993}`, system{Cores: 9007199254740993}, ""},
		{`{"Cores":1` + strings.Repeat("0", 100) + `,"Model":1` + strings.Repeat("0", 100) + `}`, system{}, "Cores Model"},
		// Bools.
		{`{"Inserted":"True"}`, system{Inserted: yes()}, ""},
		{`{"Inserted":1}`, system{Inserted: yes()}, ""},
		{`{"Inserted":"perhaps"}`, system{}, "Inserted"},
		{`{"Inserted":{}}`, system{}, "Inserted"},
		// What the peer does not tell.
		{`{"Cores":null,"Model":null,"Status":null,"Members":null,"Inserted":null,"Speed":null,"Attrs":null,"Boot":null,"Any":null}`, system{}, ""},
		{`{"Cores":"N/A","Model":"n/a","Status":"N/A","Members":"N/A","Inserted":"Unknown","Speed":"","Attrs":"None","Boot":"N/A","Number":"N/A"}`, system{}, ""},
		{`{"Model":"Unknown","PowerState":""}`, system{Model: "Unknown"}, ""},
		{`{"Own":"N/A","At":""}`, system{}, ""},
		// One value costs itself only.
		{`{"Status":"OK","Cores":2}`, system{Cores: 2}, "Status"},
		{`{"Status":{"Health":{"a":1},"State":"Enabled"},"Cores":2}`, system{Status: status{State: "Enabled"}, Cores: 2}, "Status.Health"},
		{`{"Boot":{"Health":[1,2],"State":"On"}}`, system{Boot: &status{State: "On"}}, "Boot.Health"},
		{`{"Boot":"On"}`, system{}, "Boot"},
		{`{"Speed":"1000"}`, system{Speed: number(1000)}, ""},
		{`{"Own":3,"Cores":1}`, system{Cores: 1}, "Own"},
		{`{"Own":4,"At":"2026-01-02T03:04:05Z"}`, system{Own: 4, At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}, ""},
		{`{"At":"yesterday","Own":"4"}`, system{}, "At Own"},
		// Lists.
		{`{"Members":{"@odata.id":"/a"}}`, system{Members: []link{{"/a"}}}, ""},
		{`{"Members":[{"@odata.id":"/a"},"/b",null,{"@odata.id":"/c"}]}`, system{Members: []link{{"/a"}, {"/c"}}}, "Members[1]"},
		{`{"Members":[]}`, system{Members: []link{}}, ""},
		{`{"Speeds":[1,"2","x",{}],"Words":"one"}`, system{Speeds: []int{1, 2}, Words: []string{"one"}}, "Speeds[2] Speeds[3]"},
		{`{"Model":["m"],"Status":[{"Health":"OK"}]}`, system{Model: "m", Status: status{Health: "OK"}}, ""},
		{`{"Model":["m","n"],"Cores":[[1]],"Status":[]}`, system{}, "Model Cores Status"},
		{`{"Pair":[1,2,3],"Data":"YQ=="}`, system{Pair: [2]int{1, 2}, Data: []byte("a")}, ""},
		// Maps and raw values.
		{`{"Attrs":{"a":1,"b":null},"Counts":{"x":"1","y":"z","w":null}}`, system{Attrs: map[string]any{"a": 1.0, "b": nil}, Counts: map[string]int{"x": 1}}, "Counts.y"},
		{`{"Attrs":[],"Counts":7,"Raw":[1, 2]}`, system{Raw: json.RawMessage("[1, 2]")}, "Attrs Counts"},
		{`{"Attrs":{"a":{"b":[1,"x"]}}}`, system{Attrs: map[string]any{"a": map[string]any{"b": []any{1.0, "x"}}}}, ""},
		// Bytes around and within the document.
		{"\xef\xbb\xbf {\"Model\" : \"a\tb\\\"\" }\n\x00\x00", system{Model: `a b"`}, ""},
		{"{\"Model\":\"a\xffb\"}", system{Model: "a\ufffdb"}, ""},
	} {
		var got system
		odd, err := loose.Decode([]byte(c.text), &got)
		if err != nil {
			t.Errorf("Decode(%s): want no error, got %v", c.text, err)
			continue
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("Decode(%s):\nwant %+v\ngot  %+v", c.text, c.want, got)
		}
		if strings.Join(odd, " ") != c.odd {
			t.Errorf("Decode(%s): want odd paths %q, got %q", c.text, c.odd, odd)
		}
	}
}

// TestDecodeKeeps: what the document does not tell stays as it was.
func TestDecodeKeeps(t *testing.T) {
	t.Parallel()
	got := system{Model: "m", Cores: 4, Boot: &status{Health: "OK"}}
	odd, err := loose.Decode([]byte(`{"Model":null,"Cores":"many","Boot":{"State":"On"}}`), &got)
	want := system{Model: "m", Cores: 4, Boot: &status{"OK", "On"}}
	if err != nil || !reflect.DeepEqual(got, want) || !slices.Equal(odd, []string{"Cores"}) {
		t.Errorf("got %+v, odd %q, error %v; want %+v and Cores", got, odd, err, want)
	}
}

// TestDecodeRefuses: a document that is no JSON, of another type as a whole, or beyond the bounds is an error.
func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":            "no JSON",
		"<html>":      "no JSON",
		`{"a":1`:      "no JSON",
		`{"a":1} {}`:  "no JSON",
		`{"a":"\`:     "no JSON",
		`"text"`:      "is a text, which is no object",
		`[]`:          "is a list, which is no object",
		`null`:        "is null, which is no object",
		`7`:           "is a number, which is no object",
		`{"Members":`: "no JSON",
		`{"Any":` + strings.Repeat("[", loose.MaxDepth+1) + strings.Repeat("]", loose.MaxDepth+1) + `}`: "nests deeper",
		strings.Repeat("[", 100_000):                                  "no JSON",
		`{"Speeds":[0` + strings.Repeat(",0", loose.MaxValues) + `]}`: "values",
	} {
		var got system
		if _, err := loose.Decode([]byte(text), &got); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Decode(%.40s): want an error with %q, got %v", text, want, err)
		}
	}
	if _, err := loose.Decode([]byte(`{}`), system{}); err == nil {
		t.Error("Decode into a struct that is no pointer: want an error, got none")
	}
}

// TestDecodeRoots: the document may be a list, a map or a text, and a list may be one value.
func TestDecodeRoots(t *testing.T) {
	t.Parallel()
	var list []link
	if _, err := loose.Decode([]byte(`{"@odata.id":"/a"}`), &list); err != nil || !reflect.DeepEqual(list, []link{{"/a"}}) {
		t.Errorf("a value for a list: got %v, %v", list, err)
	}
	var counts map[string]int
	if odd, err := loose.Decode([]byte(`{"a":1,"b":{}}`), &counts); err != nil || counts["a"] != 1 || len(counts) != 1 || !slices.Equal(odd, []string{"b"}) {
		t.Errorf("a map: got %v, odd %q, %v", counts, odd, err)
	}
	var one system
	if _, err := loose.Decode([]byte(`[{"Model":"m"}]`), &one); err != nil || one.Model != "m" {
		t.Errorf("a list of one for a value: got %+v, %v", one, err)
	}
}

// TestOddIsBounded: a peer cannot make the list of odd paths, or a path, as long as it likes.
func TestOddIsBounded(t *testing.T) {
	t.Parallel()
	text := `{"Counts":{"` + strings.Repeat("k", 10_000) + `":"x"},"Speeds":["x"` + strings.Repeat(`,"x"`, 1000) + `]}`
	var got system
	odd, err := loose.Decode([]byte(text), &got)
	if err != nil || len(odd) != loose.MaxOdd || len(odd[0]) > 300 {
		t.Errorf("got %d paths, the first of %d bytes, error %v; want %d paths of at most 300 bytes", len(odd), len(odd[0]), err, loose.MaxOdd)
	}
}

// own embeds pointers and itself, as recursive documents do.
type own struct {
	*Inner
	*own2
	Next *own
}

type Inner struct{ A, B int }

type own2 struct{ C int }

// TestEmbeddedPointers: embedded pointers are allocated where Go allows it, and recursive types end.
func TestEmbeddedPointers(t *testing.T) {
	t.Parallel()
	var got own
	odd, err := loose.Decode([]byte(`{"A":1,"C":2,"Next":{"B":"3"}}`), &got)
	if err != nil || len(odd) != 0 || got.Inner == nil || got.A != 1 || got.own2 != nil || got.Next == nil || got.Next.B != 3 {
		t.Errorf("got %+v, odd %q, error %v", got, odd, err)
	}
}

// FuzzDecode: whatever encoding/json decodes without an error, Decode decodes to the same, and nothing panics.
func FuzzDecode(f *testing.F) {
	for _, text := range []string{`{"Model":"m","Cores":1,"Members":[{"@odata.id":"/a"}]}`, `{"Attrs":{"a":null},"Pair":[1,2]}`, `{"At":"x"}`, `[{}]`, `{"Model":"\ud800"}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		type plain struct {
			Model string
			Cores int
			Load  float64
			Boot  *status
			Words []string
		}
		var want, got plain
		strict := json.Unmarshal(text, &want)
		_, err := loose.Decode(text, &got)
		if strict != nil || err != nil {
			return
		}
		if want.Model != got.Model && got.Model != "" || want.Cores != got.Cores || want.Load != got.Load {
			t.Errorf("%s: encoding/json has %+v, Decode %+v", text, want, got)
		}
	})
}
