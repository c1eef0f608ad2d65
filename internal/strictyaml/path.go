package strictyaml

import (
	"cmp"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// step is a member, an index or a key of a path.
var step = regexp.MustCompile(`[^.\[\]]+`)

// Text returns the scalar at a path as a text, or "" if it does not exist.
func (d *Document) Text(path string) string {
	if node := d.at(path); node != nil {
		return node.Value
	}
	return ""
}

// Tag returns the tag of the value at a path that its author wrote, or "": !has(a) is a tag unless it is quoted.
func (d *Document) Tag(path string) string {
	if node := d.at(path); node != nil && !strings.HasPrefix(node.Tag, "!!") {
		return node.Tag
	}
	return ""
}

// at returns the value at a path, nil if it does not exist.
func (d *Document) at(path string) *yaml.Node {
	node := resolve(d.root)
	for _, token := range step.FindAllString(path, -1) {
		if node = child(node, token); node == nil {
			return nil
		}
	}
	return node
}

// Line returns the line of the value at a path. If there is no such value, it returns the
// line of the innermost value around it.
func (d *Document) Line(path string) int {
	node := resolve(d.root)
	for _, token := range step.FindAllString(path, -1) {
		next := child(node, token)
		if next == nil {
			break
		}
		node = next
	}
	return node.Line
}

// KeyLine returns the line of the key of the value at a path, or of the key of a list or mapping in the path whose elements are
// all meant, "[*]". It returns 0 if there is no such value.
func (d *Document) KeyLine(path string) (line int) {
	node := resolve(d.root)
	for _, token := range step.FindAllString(path, -1) {
		if token == "*" {
			return line
		}
		next := child(node, token)
		if next == nil {
			return 0
		}
		if line = next.Line; node.Kind == yaml.MappingNode {
			key, _ := member(node, token)
			line = key.Line
		}
		node = next
	}
	return line
}

// Comments returns the comments above the value at a path and behind it, "" if the value does
// not exist.
func (d *Document) Comments(path string) (above, behind string) {
	node := resolve(d.root)
	for _, token := range step.FindAllString(path, -1) {
		next := child(node, token)
		if next == nil {
			return "", ""
		}
		above, behind = next.HeadComment, next.LineComment
		if node.Kind == yaml.MappingNode {
			key, _ := member(node, token)
			above, behind = key.HeadComment, cmp.Or(next.LineComment, key.LineComment)
		}
		node = next
	}
	return above, behind
}

func child(node *yaml.Node, token string) *yaml.Node {
	switch node.Kind {
	case yaml.MappingNode:
		if _, value := member(node, token); value != nil {
			return resolve(value)
		}
	case yaml.SequenceNode:
		if i, err := strconv.Atoi(token); err == nil && i >= 0 && i < len(node.Content) {
			return resolve(node.Content[i])
		}
	}
	return nil
}

// member returns a member of a mapping, nil if there is none.
func member(node *yaml.Node, name string) (key, value *yaml.Node) {
	for i := 0; i < len(node.Content); i += 2 {
		if node.Content[i].Value == name {
			return node.Content[i], node.Content[i+1]
		}
	}
	return nil, nil
}

// resolve returns the node that an alias refers to.
func resolve(node *yaml.Node) *yaml.Node {
	if node.Kind == yaml.AliasNode {
		return node.Alias
	}
	return node
}
