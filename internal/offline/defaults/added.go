package defaults

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fastadmit/fastadmit/internal/fieldpath"
)

// addedMax is the maximum number of fields that Added returns: more than a message should list.
const addedMax = 20

// Changes are an object as somebody wrote it, with its defaults, and as plugins left it. All are nil if one is not JSON.
type Changes struct {
	of       [3]any
	isSecret bool
}

// NewChanges returns the changes of an object, which it decodes.
func NewChanges(gvk schema.GroupVersionKind, given, withDefaults, now []byte) *Changes {
	c := &Changes{isSecret: gvk == schema.GroupVersionKind{Version: "v1", Kind: "Secret"}}
	for i, text := range [...][]byte{given, withDefaults, now} {
		if decode(text, &c.of[i]) != nil {
			return &Changes{}
		}
	}
	return c
}

// Added returns the fields at the paths that the object has by its defaults only: somebody did not write them or wrote
// null there, and plugins left what the object had with its defaults. A path is one of report.Finding; each field of a path
// with [*] is returned. Nothing is returned of a list that plugins made longer or shorter.
func (c *Changes) Added(paths []string) []string {
	var all []string
	for _, path := range paths {
		if steps := fieldpath.Steps(path); len(steps) > 0 && (!c.isSecret || steps[0] != "data") { // a Secret's data is of its stringData
			all = added(all, "", steps, c.of)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// added appends the fields of a path to all. of are the given object, the one with defaults, and the one now, at the path so far.
func added(all []string, path string, steps []string, of [3]any) []string {
	if len(all) >= addedMax || of[1] == nil {
		return all
	}
	if len(steps) == 0 {
		if of[0] == nil && reflect.DeepEqual(of[1], of[2]) {
			all = append(all, path)
		}
		return all
	}
	if list, ok := of[1].([]any); ok && (!hasElements(of[2], list) || of[0] != nil && !hasElements(of[0], list)) {
		return all
	}
	for _, name := range names(of[1], steps[0]) {
		var inner [3]any
		for i := range of {
			inner[i] = child(of[i], name)
		}
		next := fmt.Sprintf("%s[%s]", path, name)
		if _, isObject := of[1].(object); isObject {
			if next = strings.TrimPrefix(path+"."+name, "."); strings.ContainsAny(name, "./[]") {
				next = fmt.Sprintf("%s[%q]", path, name)
			}
		}
		all = added(all, next, steps[1:], inner)
	}
	return all
}

// hasElements reports whether a value is a list with as many elements as another one, of the same names.
func hasElements(value any, of []any) bool {
	list, _ := value.([]any)
	for i := range list {
		if i < len(of) && !reflect.DeepEqual(child(list[i], "name"), child(of[i], "name")) {
			return false
		}
	}
	return len(list) == len(of)
}

// names returns the names of the fields, or the indexes, that a step of a path stands for.
func names(value any, step string) (all []string) {
	if step != "*" {
		return []string{step}
	}
	switch value := value.(type) {
	case object:
		return slices.Sorted(maps.Keys(value))
	case []any:
		for i := range value {
			all = append(all, strconv.Itoa(i))
		}
	}
	return all
}

// child returns a field or an element of a value, nil if there is none.
func child(value any, name string) any {
	switch value := value.(type) {
	case object:
		return value[name]
	case []any:
		if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < len(value) {
			return value[i]
		}
	}
	return nil
}
