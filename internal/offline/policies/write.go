package policies

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/fastadmit/fastadmit/internal/offline/manifest"
	"github.com/fastadmit/fastadmit/internal/printable"
)

// Write writes the policies and bindings as YAML, with the comments of the documents that they
// come from.
func (t *Translation) Write(w io.Writer) error {
	var positions manifest.Positions
	var b bytes.Buffer
	encoder := yaml.NewEncoder(&b)
	const indent = 2
	encoder.SetIndent(indent)
	for i := range t.Items {
		item, from := &t.Items[i], t.origins[i]
		root, err := Node(item.JSON)
		if err != nil {
			return fmt.Errorf("%s: %w", item.Source, err)
		}
		if find(item.GroupVersionKind()).policy == item.Kind {
			comment(root, "", func(path string) (head, line string) {
				return positions.CommentsOf(from.object, from.policy.Origin(path))
			})
			root.HeadComment = strings.TrimSpace(fmt.Sprintf("# From %s %q in %s.\n%s",
				from.object.Kind, from.object.Metadata.Name, printable.Word(from.object.String()), root.HeadComment))
		}
		if err := encoder.Encode(root); err != nil {
			return err
		}
	}
	if err := encoder.Close(); err != nil {
		return err
	}
	_, err := io.WriteString(w, printable.Plain(b.String()))
	return err
}

// Node returns an object in JSON as people write it in YAML.
func Node(text []byte) (*yaml.Node, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil { // JSON is YAML, with the order of its members
		return nil, err
	}
	root := document.Content[0]
	plainStyle(root)
	order(root)
	return root, nil
}

// plainStyle writes values in the usual form of YAML, and long texts in lines.
func plainStyle(node *yaml.Node) {
	node.Style = 0
	if node.Kind == yaml.ScalarNode && node.Tag == "!!str" {
		if strings.Contains(node.Value, "\n") {
			node.Style = yaml.LiteralStyle
		} else if encoded := new(yaml.Node); encoded.Encode(node.Value) == nil {
			node.Style = encoded.Style // quoted if YAML 1.1 takes it for something else, such as off
		}
	}
	for _, below := range node.Content {
		plainStyle(below)
	}
}

// order puts apiVersion, kind and metadata first, as people write them.
func order(root *yaml.Node) {
	var first, rest []*yaml.Node
	for _, name := range []string{"apiVersion", "kind", "metadata"} {
		for i := 0; i+1 < len(root.Content); i += 2 {
			if root.Content[i].Value == name {
				first = append(first, root.Content[i:i+2]...)
			}
		}
	}
	for i := 0; i+1 < len(root.Content); i += 2 {
		if key := root.Content[i].Value; key != "apiVersion" && key != "kind" && key != "metadata" {
			rest = append(rest, root.Content[i:i+2]...)
		}
	}
	root.Content = slices.Concat(first, rest)
}

// comment adds the comments that of returns for the path of a value.
func comment(node *yaml.Node, path string, of func(path string) (head, line string)) {
	switch node.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			key, value := node.Content[i], node.Content[i+1]
			below := strings.TrimPrefix(path+"."+key.Value, ".")
			head, line := of(below)
			key.HeadComment = head
			if value.Kind == yaml.ScalarNode {
				value.LineComment = line
			} else {
				key.LineComment = line
			}
			comment(value, below, of)
		}
	case yaml.SequenceNode:
		for i, element := range node.Content {
			below := fmt.Sprintf("%s[%d]", path, i)
			if head, _ := of(below); head != "" {
				element.HeadComment = head
			}
			comment(element, below, of)
		}
	}
}
