package docs

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// resourceTable makes a table of the fields in the CustomResourceDefinition of a kind. It leaves out the fields of
// selectors.
func resourceTable(file, kind string) (string, error) {
	text, err := Read(file)
	if err != nil {
		return "", err
	}
	for document := range strings.SplitSeq(text, "\n---\n") {
		var definition struct {
			Spec struct {
				Names    struct{ Kind string }
				Versions []struct {
					Schema struct{ OpenAPIV3Schema map[string]any }
				}
			}
		}
		if err := yaml.Unmarshal([]byte(document), &definition); err != nil {
			return "", fmt.Errorf("%s: %w", file, err)
		}
		if definition.Spec.Names.Kind != kind {
			continue
		}
		properties := definition.Spec.Versions[0].Schema.OpenAPIV3Schema["properties"].(map[string]any)
		var root string
		for _, root = range []string{"spec", "webhooks", "status"} {
			if properties[root] != nil {
				break
			}
		}
		table := "| field | type | meaning |\n|---|---|---|\n"
		addResourceRows(&table, root, properties[root].(map[string]any))
		return table, nil
	}
	return "", fmt.Errorf("%s has no %s", file, kind)
}

func addResourceRows(table *string, path string, schema map[string]any) {
	if items, ok := schema["items"].(map[string]any); ok {
		schema, path = items, path+"[]"
	}
	properties, _ := schema["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		p := properties[name].(map[string]any)
		about, _ := p["description"].(string)
		about, _, _ = strings.Cut(about, "\n\n") // the first paragraph
		*table += fmt.Sprintf("| `%s.%s` | %s | %s |\n", path, name, typeOf(p), tableCell(about))
		if !strings.HasSuffix(name, "Selector") {
			addResourceRows(table, path+"."+name, p)
		}
	}
}
