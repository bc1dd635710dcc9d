package kit

import (
	"encoding/json"
	"regexp"
	"time"

	"salvor/record"
)

// isoTime is a time as the APIs write them. Nova and Cinder leave the zone out, and mean UTC.
var isoTime = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?$`)

// ShownTime writes a time of an API as record.Moment does, for people; any other text stays as it is.
func ShownTime(text string) string {
	found := isoTime.FindStringSubmatch(text)
	if found == nil {
		return text
	}
	if found[2] == "" {
		text += "Z"
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return text
	}
	return record.Moment(at)
}

// shownTimes is ShownTime for every text within a value; the value itself is not changed.
func shownTimes(v any) any {
	switch v := v.(type) {
	case string:
		return ShownTime(v)
	case time.Time:
		return record.Moment(v)
	case *time.Time:
		if v != nil {
			return record.Moment(*v)
		}
	case json.Marshaler:
		return v
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = shownTimes(v[i])
		}
		return out
	case []string:
		out := make([]string, len(v))
		for i := range v {
			out[i] = ShownTime(v[i])
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, one := range v {
			out[key] = shownTimes(one)
		}
		return out
	}
	return v
}
