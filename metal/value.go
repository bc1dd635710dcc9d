package metal

import (
	"fmt"
	"strconv"
)

func formatInt(n int64) string { return strconv.FormatInt(n, 10) }

// formatScalar writes out a scalar of a free-form object; nil is the empty string.
func formatScalar(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return fmt.Sprint(v)
}
