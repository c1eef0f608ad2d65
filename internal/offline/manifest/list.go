package manifest

import (
	"bytes"
	"encoding/json"
	"strings"

	"sigs.k8s.io/yaml"
)

// A list has its objects in the member items: kind List, and the typed lists that
// kube-apiserver answers with, as PodList.
type list struct {
	Head
	Items *[]json.RawMessage
}

// unpack returns an object, or the objects of a list. lineAt says in which line of
// the file an offset of the text is; nil if that is not known.
func unpack(source Source, text []byte, lineAt func(offset int) int) []Item {
	var l list
	if !bytes.Contains(text, []byte(`"items"`)) || json.Unmarshal(text, &l) != nil || !l.is() {
		return []Item{newItem(source, text)}
	}
	var items []Item
	at := 0
	for _, element := range *l.Items {
		source := source
		if lineAt != nil {
			// Elements are parts of the text, in its order.
			at += bytes.Index(text[at:], element)
			source.Line = lineAt(at)
		}
		items = append(items, unpack(source, l.typed(element), lineWithin(lineAt, at))...)
		at += len(element)
	}
	return items
}

func lineWithin(lineAt func(offset int) int, begin int) func(offset int) int {
	if lineAt == nil {
		return nil
	}
	return func(offset int) int { return lineAt(begin + offset) }
}

// is says whether it is a list: a custom resource may have such a name, too.
func (l *list) is() bool { return strings.HasSuffix(l.Kind, "List") && l.Items != nil }

// typed gives an element of a typed list, which may not say so itself, its type.
func (l *list) typed(element []byte) []byte {
	kind := strings.TrimSuffix(l.Kind, "List")
	var head Head
	if kind == "" || json.Unmarshal(element, &head) != nil || head.Kind != "" || head.APIVersion != "" {
		return element
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(element, &object) != nil || object == nil {
		return element
	}
	object["kind"], _ = json.Marshal(kind) // strings can be marshalled
	object["apiVersion"], _ = json.Marshal(l.APIVersion)
	typed, err := json.Marshal(object)
	if err != nil {
		return element
	}
	return typed
}

// parseItems reads a list in YAML as kubectl writes it: each element by itself,
// which is quicker for long lists, and tells the lines of the objects. It gives up
// on whatever is written in another way.
func (d *document) parseItems(name string) (items []Item, ok bool) {
	head, elements := d.elements()
	if elements == nil {
		return nil, false
	}
	var l list
	text, err := yaml.YAMLToJSONStrict(head)
	if err != nil || json.Unmarshal(text, &l) != nil || !strings.HasSuffix(l.Kind, "List") || l.APIVersion == "" {
		return nil, false
	}
	all := make([][]Item, len(elements))
	faults := make([]error, len(elements))
	parallel(len(elements), func(i int) {
		text, err := yaml.YAMLToJSONStrict(elements[i].text)
		if faults[i] = err; err == nil {
			all[i] = unpack(Source{File: name, Line: elements[i].line}, l.typed(text), nil)
		}
	})
	for i := range all {
		if faults[i] != nil {
			return nil, false
		}
		items = append(items, all[i]...)
	}
	return items, true
}

// elements returns the elements of the block sequence under the key items of a
// document, and the document without them. There are none if it is not written in
// that way, or if something in it may refer to something else (an anchor).
func (d *document) elements() (head []byte, elements []document) {
	if bytes.Contains(d.text, []byte(" &")) || !bytes.Contains(d.text, []byte("items:")) {
		return nil, nil
	}
	const outside, begun, within = 0, 1, 2
	state, indent, line := outside, 0, d.line-1
	for text := range bytes.Lines(d.text) {
		line++
		content := bytes.TrimLeft(text, " ")
		depth := len(text) - len(content)
		isElement := bytes.HasPrefix(content, []byte("- ")) || string(bytes.TrimSpace(content)) == "-"
		isBlank := len(bytes.TrimSpace(content)) == 0 || content[0] == '#'
		switch {
		case state == outside && bytes.Equal(bytes.TrimRight(text, " \r\n"), []byte("items:")):
			if elements != nil {
				return nil, nil
			}
			state = begun
			continue
		case state == begun && isBlank:
			continue
		case state == begun && isElement:
			state, indent = within, depth
		case state == begun, state == within && !isBlank && depth < indent, state == within && !isBlank && depth == indent && !isElement:
			state = outside
		}
		if state == outside {
			head = append(head, text...)
			continue
		}
		if isElement && depth == indent {
			element := append(bytes.Repeat([]byte(" "), depth+1), content[1:]...)
			elements = append(elements, document{text: element, line: line})
			continue
		}
		last := &elements[len(elements)-1]
		last.text = append(last.text, text...)
	}
	return head, elements
}
