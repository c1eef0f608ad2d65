// Package fieldpath reads the paths of fields.
package fieldpath

import (
	"strconv"
	"strings"
)

// Steps returns the names and indexes in a path such as spec.containers[0].image or metadata.labels["a.b/c"], nil if it
// is none.
func Steps(path string) (steps []string) {
	for path != "" {
		if inner, ok := strings.CutPrefix(path, "["); ok {
			step, rest, closed := strings.Cut(inner, "]")
			if quoted, err := strconv.QuotedPrefix(inner); err == nil {
				step, _ = strconv.Unquote(quoted) // it is quoted
				rest, closed = strings.CutPrefix(inner[len(quoted):], "]")
			}
			if !closed {
				return nil
			}
			steps, path = append(steps, step), strings.TrimPrefix(rest, ".")
			continue
		}
		end := strings.IndexAny(path, ".[")
		if end < 0 {
			end = len(path)
		}
		if end == 0 {
			return nil
		}
		steps, path = append(steps, path[:end]), strings.TrimPrefix(path[end:], ".")
	}
	return steps
}
