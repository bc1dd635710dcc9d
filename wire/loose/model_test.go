package loose_test

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"salvor/wire/loose"
)

// model decodes by the rules of Decode in the plainest way: it has encoding/json take documents apart, and keeps nothing between two values.
type model struct{ odd []string }

// modelMember is a member of an object, or an element of a list, whose name is empty.
type modelMember struct {
	name string
	raw  json.RawMessage
}

// parts takes an object or a list apart.
func parts(raw json.RawMessage) (out []modelMember) {
	d := json.NewDecoder(bytes.NewReader(raw))
	open, _ := d.Token()
	for d.More() {
		var m modelMember
		if open == json.Delim('{') {
			name, _ := d.Token()
			m.name = name.(string)
		}
		if err := d.Decode(&m.raw); err != nil {
			panic(err)
		}
		out = append(out, m)
	}
	return out
}

func isTextType(t reflect.Type) bool {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Kind() == reflect.String && t != reflect.TypeFor[json.Number]()
}

func isUntold(raw json.RawMessage, forText bool) bool {
	var text string
	if raw[0] != '"' || json.Unmarshal(raw, &text) != nil {
		return raw[0] == 'n'
	}
	text = strings.ToLower(strings.TrimSpace(text))
	if forText {
		return text == "n/a"
	}
	return slices.Contains([]string{"n/a", "na", "none", "null", "nil", "unknown", "not available", "not applicable", "-", "--", ""}, text)
}

// scalarText is a text, number or bool as text.
func scalarText(raw json.RawMessage) (text string, ok bool) {
	switch raw[0] {
	case '"':
		return text, json.Unmarshal(raw, &text) == nil
	case '{', '[', 'n':
		return "", false
	}
	return string(raw), len(raw) <= 64
}

// numberIn is the text of a number, or of a text that holds one.
func numberIn(raw json.RawMessage) (string, bool) {
	text, ok := scalarText(raw)
	text = strings.TrimSpace(text)
	return text, ok && raw[0] != 't' && raw[0] != 'f' && len(text) <= 64 && !strings.ContainsAny(text, "_xXpPnN")
}

func (m *model) part(raw json.RawMessage, to reflect.Value, path string) bool {
	ok := m.decode(raw, to, path)
	if !ok && !isUntold(raw, isTextType(to.Type())) && len(m.odd) < loose.MaxOdd {
		if len(path) > 200 {
			path = strings.ToValidUTF8(path[:200], "") + "..."
		}
		m.odd = append(m.odd, path)
	}
	return ok
}

// strict decodes by encoding/json or by fn; a failure leaves the target as it was.
func strict(to reflect.Value, fn func(any) error) bool {
	fresh := reflect.New(to.Type())
	if fn(fresh.Interface()) != nil {
		return false
	}
	to.Set(fresh.Elem())
	return true
}

func (m *model) decode(raw json.RawMessage, to reflect.Value, path string) bool {
	t, isListType := to.Type(), to.Kind() == reflect.Slice || to.Kind() == reflect.Array
	_, decodesItself := reflect.New(t).Interface().(json.Unmarshaler)
	_, decodesText := reflect.New(t).Interface().(encoding.TextUnmarshaler)
	switch {
	case t == reflect.TypeFor[json.RawMessage]():
		to.SetBytes(slices.Clone(raw))
		return true
	case t.Kind() == reflect.Pointer:
		fresh := reflect.New(t.Elem())
		if !to.IsNil() {
			fresh.Elem().Set(to.Elem())
		}
		if raw[0] == 'n' || !m.decode(raw, fresh.Elem(), path) {
			return false
		}
		to.Set(fresh)
		return true
	case decodesItself, t.Kind() == reflect.Interface:
		return strict(to, func(v any) error { return json.Unmarshal(raw, v) })
	case isUntold(raw, isTextType(t)):
		return false
	case decodesText:
		text, ok := scalarText(raw)
		return ok && strict(to, func(v any) error { return v.(encoding.TextUnmarshaler).UnmarshalText([]byte(text)) })
	case t == reflect.TypeFor[json.Number]():
		text, ok := numberIn(raw)
		return ok && strict(to, func(v any) error { return json.Unmarshal([]byte(text), v) })
	case !isListType && raw[0] == '[':
		list := parts(raw)
		return len(list) == 1 && list[0].raw[0] != '[' && m.decode(list[0].raw, to, path)
	}
	return m.byKind(raw, to, path)
}

func (m *model) byKind(raw json.RawMessage, to reflect.Value, path string) bool {
	switch to.Kind() {
	case reflect.Struct:
		return raw[0] == '{' && m.object(raw, to, path)
	case reflect.Map:
		return raw[0] == '{' && m.mapOf(raw, to, path)
	case reflect.Slice, reflect.Array:
		return m.list(raw, to, path)
	case reflect.String:
		text, ok := scalarText(raw)
		if ok {
			to.SetString(text)
		}
		return ok
	case reflect.Bool:
		text, ok := scalarText(raw)
		text = strings.ToLower(strings.TrimSpace(text))
		is := slices.Contains([]string{"true", "yes", "on", "enabled", "1"}, text)
		if ok = ok && (is || slices.Contains([]string{"false", "no", "off", "disabled", "0"}, text)); ok {
			to.SetBool(is)
		}
		return ok
	}
	text, ok := numberIn(raw)
	f, err := strconv.ParseFloat(text, 64)
	if !ok || err != nil || strings.Contains(strings.ToLower(text), "inf") {
		return false
	}
	whole := strconv.FormatFloat(f, 'f', -1, 64)
	isSmall := f <= 1<<53 && f >= -(1<<53)
	switch {
	case to.CanInt():
		i, err := strconv.ParseInt(text, 10, 64)
		if err != nil && isSmall {
			i, err = strconv.ParseInt(strings.Replace(whole, "-0", "0", 1), 10, 64)
		}
		if ok = err == nil && !to.OverflowInt(i); ok {
			to.SetInt(i)
		}
	case to.CanUint():
		u, err := strconv.ParseUint(text, 10, 64)
		if err != nil && isSmall {
			u, err = strconv.ParseUint(strings.Replace(whole, "-0", "0", 1), 10, 64)
		}
		if ok = err == nil && !to.OverflowUint(u); ok {
			to.SetUint(u)
		}
	case to.CanFloat() && !to.OverflowFloat(f):
		to.SetFloat(f)
	default:
		return false
	}
	return ok
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// object finds the field of a member as encoding/json does: by its name, or else by the first name that differs in case only.
func (m *model) object(raw json.RawMessage, to reflect.Value, path string) bool {
	names := map[string]string{} // a field of Go by the member's name
	var inOrder []string
	for _, f := range reflect.VisibleFields(to.Type()) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.IsExported() && !f.Anonymous && f.Tag.Get("json") != "-" {
			if name == "" {
				name = f.Name
			}
			names[name] = f.Name
			inOrder = append(inOrder, name)
		}
	}
	slices.Sort(inOrder)
	for _, part := range parts(raw) {
		name := part.name
		if names[name] == "" {
			i := slices.IndexFunc(inOrder, func(n string) bool { return strings.EqualFold(n, name) })
			if i < 0 {
				continue
			}
			name = inOrder[i]
		}
		m.part(part.raw, to.FieldByName(names[name]), join(path, name))
	}
	return true
}

func (m *model) mapOf(raw json.RawMessage, to reflect.Value, path string) bool {
	out := reflect.MakeMap(to.Type())
	for _, part := range parts(raw) {
		v := reflect.New(to.Type().Elem()).Elem()
		if m.part(part.raw, v, join(path, part.name)) {
			out.SetMapIndex(reflect.ValueOf(part.name), v)
		}
	}
	to.Set(out)
	return true
}

func (m *model) list(raw json.RawMessage, to reflect.Value, path string) bool {
	if to.Type() == reflect.TypeFor[[]byte]() {
		return strict(to, func(v any) error { return json.Unmarshal(raw, v) })
	}
	out := reflect.MakeSlice(reflect.SliceOf(to.Type().Elem()), 0, 0)
	if raw[0] != '[' {
		v := reflect.New(to.Type().Elem()).Elem()
		if !m.decode(raw, v, path) {
			return false
		}
		out = reflect.Append(out, v)
	} else {
		for i, part := range parts(raw) {
			v := reflect.New(to.Type().Elem()).Elem()
			if m.part(part.raw, v, fmt.Sprintf("%s[%d]", path, i)) {
				out = reflect.Append(out, v)
			}
		}
	}
	if to.Kind() == reflect.Array {
		reflect.Copy(to, out)
	} else {
		to.Set(out)
	}
	return true
}

// anyText decodes itself from any value, as links of Redfish do.
type anyText string

func (a *anyText) UnmarshalJSON(text []byte) error {
	var v any
	_, err := loose.Decode(text, &v)
	*a = anyText(fmt.Sprint(v))
	return err
}

// everything has a field of each way in which Decode decodes.
type everything struct {
	head
	Model, Power string
	Cores        int
	Small        int8
	Bytes        uint64
	Tiny         uint8
	Load         float64
	Half         float32
	Inserted     *bool
	Is           bool
	Speed        *int
	Deep         **string
	Status       status
	Boot         *status
	Members      []link
	Links        []anyText
	Nested       []everything
	Next         *everything
	Words        []string
	Speeds       []int
	Flags        []*bool
	Lists        [][]int
	Pair         [2]int
	Four         [4]byte
	Attrs        map[string]any
	Counts       map[string]int
	Parts        map[string]status
	Raw          json.RawMessage
	Own          even
	At           time.Time
	Number       json.Number
	Any          any
	Odd          fmt.Stringer
	Hidden       string `json:"-"`
	Data         []byte
	Folded       string `json:"ſtrange-Ünit"`
	Named        string `json:"@odata.id"`
}

// requireAsModel fails unless Decode and the model make the same of a document, into an empty target and into one that has values.
func requireAsModel(t *testing.T, text []byte) {
	t.Helper()
	for _, former := range []func() everything{
		func() everything { return everything{} },
		func() everything {
			return everything{Model: "m", Cores: 7, Speed: number(3), Boot: &status{Health: "OK"}, Words: []string{"a", "b"}, Attrs: map[string]any{"a": 1.0}, Pair: [2]int{8, 9}, Any: "x"}
		},
	} {
		got, want := former(), former()
		odd, err := loose.Decode(text, &got)
		if err != nil {
			if raw := json.RawMessage(bytes.TrimSpace(text)); json.Valid(text) && raw[0] == '{' && !strings.Contains(err.Error(), "nests") {
				t.Fatalf("Decode(%q): want no error, got %v", text, err)
			}
			return
		}
		if !json.Valid(text) {
			return // bytes around or within the document, which TestDecode has
		}
		m := model{}
		if !m.decode(json.RawMessage(bytes.TrimSpace(text)), reflect.ValueOf(&want).Elem(), "") {
			t.Fatalf("Decode(%q): want an error, got none", text)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("Decode(%q):\nwant %+v\ngot  %+v", text, want, got)
		}
		if !slices.Equal(odd, m.odd) {
			t.Fatalf("Decode(%q): want odd paths %q, got %q", text, m.odd, odd)
		}
	}
}

// seeds are documents that are mutated, and values that take the place of others in them.
var (
	seeds = []string{
		`{"Name":"a","kind":"k","Model":"m","Power":"On","Cores":3,"Small":-4,"Bytes":5,"Tiny":6,"Load":0.5,"Half":1e3,"Inserted":true,"Is":false,"Speed":9,"Deep":"d"}`,
		`{"Status":{"Health":"OK","State":"Enabled"},"Boot":{"Health":"OK"},"Members":[{"@odata.id":"/a/b"},{"@odata.id":"/c"}],"Links":[{"href":"/d/"}],"@odata.id":"/x"}`,
		`{"Nested":[{"Cores":1,"Nested":[{"Words":["a"]}]}],"Next":{"Next":{"Speeds":[1,2]}},"Words":["a","b"],"Flags":[true,null],"Lists":[[1],[2,3]]}`,
		`{"Pair":[1,2,3],"Four":[1,2,3,4],"Attrs":{"a":1,"b":{"c":[true,"x"]}},"Counts":{"x":1,"y":2},"Parts":{"p":{"State":"On"}},"Raw":[1, 2],"Own":4}`,
		`{ "At" : "2026-01-02T03:04:05Z", "Number":17, "Any":[1,{"a":null}], "Odd":null, "Hidden":"x", "Data":"YQ==", "ſtrange-Ünit":"u", "STRANGE-ünit":"v", "cores" : 5 }`,
	}
	values = []string{
		`null`, `true`, `false`, `0`, `-0`, `1`, `16.0`, `1e2`, `-7`, `300`, `1e999`, `9007199254740993`, `18446744073709551615`, `123456789012345678901234567890`, `1.5`, `[]`, `{}`, `[[]]`, `[null]`, `[1]`, `["x"]`,
		`""`, `" "`, `"N/A"`, `" n/a "`, `"None"`, `"Unknown"`, `"un\u212Anown"`, `"\u004e/A"`, `"-"`, `"not applicable"`, `"Not Available "`, `"16"`, `" 16 "`, `"0x10"`, `"1_0"`, `"Inf"`, `"True"`, `"off"`, `"yes"`,
		`"é"`, `"\ud800"`, `"a\"b"`, `"/redfish/v1/"`, `{"@odata.id":"/a"}`, `{"Health":1}`, `{"Health":"OK","health":"Bad"}`, `{"Cores":"x"}`, `[{"Cores":"x"},null,3]`, `{"":"x","a.b":[]}`, `"2026-01-02T03:04:05Z"`, `"YQ=="`,
	}
)

// mutate puts other values in the places of some values of a document, and changes the case of some names.
func mutate(r *rand.Rand, raw json.RawMessage) json.RawMessage {
	switch {
	case r.IntN(8) == 0:
		return json.RawMessage(values[r.IntN(len(values))])
	case raw[0] != '{' && raw[0] != '[':
		return raw
	}
	var out []string
	for _, p := range parts(raw) {
		text := string(mutate(r, p.raw))
		if raw[0] == '{' {
			switch r.IntN(12) {
			case 0:
				p.name = strings.ToUpper(p.name)
			case 1:
				p.name = strings.ToLower(p.name)
			case 2:
				p.name += "x"
			}
			name, _ := json.Marshal(p.name)
			text = string(name) + []string{":", " : "}[r.IntN(2)] + text
		}
		for range 1 + r.IntN(8)/7 { // some twice
			out = append(out, text)
		}
	}
	r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	closing := map[byte]string{'{': "}", '[': "]"}[raw[0]]
	return json.RawMessage(string(raw[0]) + strings.Join(out, []string{",", " ,\n\t"}[r.IntN(2)]) + closing)
}

// TestDecodeIsAsItsModel: of mutated documents Decode makes what its rules say.
func TestDecodeIsAsItsModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 0))
		doc := mutate(r, json.RawMessage(seeds[r.IntN(len(seeds))]))
		if doc[0] == '{' {
			requireAsModel(t, doc)
		}
	}
}

// FuzzDecodeIsAsItsModel is TestDecodeIsAsItsModel for any bytes.
func FuzzDecodeIsAsItsModel(f *testing.F) {
	for _, text := range seeds {
		f.Add([]byte(text))
	}
	for _, name := range []string{"Cores", "Model", "Status", "Words", "Counts", "Any", "At", "Number", "Pair", "Is", "Bytes", "Links"} {
		for _, v := range values {
			f.Add([]byte(`{"` + name + `":` + v + `}`))
		}
	}
	f.Fuzz(requireAsModel)
}
