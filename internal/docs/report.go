package docs

import (
	"encoding/json"
	"reflect"
	"strings"

	"github.com/fastadmit/fastadmit/internal/offline/report"
)

// reportSchemaFile is the schema of the output of -o json and -o yaml.
const reportSchemaFile = "docs/report.schema.json"

// reportDecisions are the values of Result.Decision.
var reportDecisions = []any{
	string(report.Allowed), string(report.Patched), string(report.Denied), string(report.Failed), string(report.Broken), string(report.Skipped),
	string(report.Differs),
}

// newReportSchema makes the schema of the output of -o json and -o yaml from its Go types.
func (g *generator) newReportSchema() map[string]any {
	c := &configurationSchema{fields: g.fieldComments(), definitions: make(map[string]any)}
	return map[string]any{
		"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Output of fastadmit review, replay and audit with -o json or -o yaml",
		"type": "object", "additionalProperties": false, "required": []any{"apiVersion", "kind", "results", "summary"},
		"properties": map[string]any{
			"apiVersion": map[string]any{"const": report.APIVersion}, "kind": map[string]any{"const": report.Kind},
			"results": map[string]any{"type": "array", "items": c.of(reflect.TypeFor[report.Result]())},
			"summary": c.of(reflect.TypeFor[report.Summary]()),
		},
		"$defs": c.definitions,
	}
}

// defined returns the schema of a struct that is defined once and may contain itself.
func (c *configurationSchema) defined(goType reflect.Type) map[string]any {
	name := goType.Name()
	if c.definitions[name] == nil {
		properties := make(map[string]any)
		s := map[string]any{"type": "object", "additionalProperties": false, "properties": properties}
		c.definitions[name] = s
		c.addFields(goType, properties)
		var needed []any
		for i := range goType.NumField() {
			if name, options, _ := strings.Cut(goType.Field(i).Tag.Get("json"), ","); name != "-" && options != "omitempty" {
				needed = append(needed, name)
			}
		}
		if needed != nil {
			s["required"] = needed
		}
	}
	return map[string]any{"$ref": "#/$defs/" + name}
}

var rawMessage = reflect.TypeFor[json.RawMessage]()
