package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	kjson "sigs.k8s.io/json"

	"github.com/fastadmit/fastadmit/internal/strictyaml"
)

// listDepthMax bounds lists of lists, as each is decoded once more for every list around
// it. Nobody writes deeper ones: "kubectl get" writes one list, and tools that join its
// output add another.
const listDepthMax = 4

// places says on which lines of its file a text is.
type places struct {
	at       func(offset int) int // nil if offsets are not those of the file
	elements []int                // the lines of the elements of a list
}

// unpack returns an object, or the objects of a list. Like kubectl (k8s.io/apimachinery
// pkg/apis/meta/v1/unstructured), it treats every object with a member items as a list. depth
// is the number of lists around the text.
func unpack(source Source, text []byte, known places, depth int) []Item {
	var list struct {
		Head
		Items json.RawMessage `json:"items"`
	}
	if !mayHaveItems(text) || kjson.UnmarshalCaseSensitivePreserveInts(text, &list) != nil || list.Items == nil {
		return []Item{newItem(source, text)}
	}
	if list.Kind == "" {
		return []Item{newItem(source, text)} // kubectl reads no items of an object without a kind
	}
	refuse := func(format string, args ...any) []Item {
		return []Item{faulty(source, fmt.Errorf(format, args...))}
	}
	var elements []json.RawMessage
	switch {
	case !strings.HasSuffix(list.Kind, "List"):
		return refuse("got a member items in the kind %q: kubectl reads the items instead of the object; want a kind that ends with List", list.Kind)
	case depth == listDepthMax:
		return refuse("got lists in lists, %d deep, want at most %d", depth+1, listDepthMax)
	case kjson.UnmarshalCaseSensitivePreserveInts(list.Items, &elements) != nil:
		return refuse("got the items %s, want a list", strictyaml.Shortened(list.Items))
	}
	if err := checkCase(text); err != nil {
		return []Item{faulty(source, err)}
	}
	var items []Item
	at := 0
	for i, element := range elements {
		source, within := source, places{}
		switch {
		case known.at != nil:
			// Elements are parts of the text, in its order.
			at += bytes.Index(text[at:], element)
			begin := at
			source.Line, within.at = known.at(begin), func(offset int) int { return known.at(begin + offset) }
			at += len(element)
		case len(known.elements) == len(elements):
			source.Line = known.elements[i]
		}
		items = append(items, unpack(source, list.typed(element), within, depth+1)...)
	}
	return items
}

// mayHaveItems reports whether a JSON text can have a member items, whose name can also be
// written with escapes. It saves decoding most objects twice.
func mayHaveItems(text []byte) bool {
	return bytes.Contains(text, []byte(`items`)) || bytes.Contains(text, []byte(`\u`))
}

// typed gives an element of a typed list, which may not say so itself, its type.
func (h *Head) typed(element []byte) []byte {
	kind := strings.TrimSuffix(h.Kind, "List")
	var head Head
	if kind == "" || kjson.UnmarshalCaseSensitivePreserveInts(element, &head) != nil || head.Kind != "" || head.APIVersion != "" {
		return element
	}
	var object map[string]json.RawMessage
	if kjson.UnmarshalCaseSensitivePreserveInts(element, &object) != nil || object == nil {
		return element
	}
	object["kind"], _ = json.Marshal(kind) // strings can be marshalled
	object["apiVersion"], _ = json.Marshal(h.APIVersion)
	typed, err := json.Marshal(object)
	if err != nil {
		return element
	}
	return typed
}
