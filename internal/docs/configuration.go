package docs

import (
	"cmp"
	"encoding/json"
	"fmt"
	"go/ast"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cmd/fastadmit/app"
	"github.com/fastadmit/fastadmit/handlers"
	"github.com/fastadmit/fastadmit/internal/config"
)

// A configurationSchema makes a JSON schema of the configuration file from its Go types.
type configurationSchema struct {
	fields map[string]string // comments of fields, by package, type and field
	usages map[string]string // of the flags of serve

	definitions map[string]any // the structs of a report; nil for the configuration, whose structs are not shared
}

// enums are the values of types and fields that allow only a few.
var enums = map[string][]any{
	"Action":                 {string(admission.ActionDeny), string(admission.ActionWarn), string(admission.ActionAudit)},
	"WorkloadPods":           {string(admission.WorkloadPodsOff), string(admission.WorkloadPodsWarn), string(admission.WorkloadPodsDeny)},
	"FailurePolicyType":      {string(admissionregistrationv1.Fail), string(admissionregistrationv1.Ignore)},
	"ReinvocationPolicyType": {string(admissionregistrationv1.NeverReinvocationPolicy), string(admissionregistrationv1.IfNeededReinvocationPolicy)},
	"MatchPolicyType":        {string(admissionregistrationv1.Equivalent), string(admissionregistrationv1.Exact)},
	"OperationType":          {"CREATE", "UPDATE", "DELETE", "CONNECT", "*"},
	"ScopeType":              {"Cluster", "Namespaced", "*"},
	"LabelSelectorOperator":  {"In", "NotIn", "Exists", "DoesNotExist"},
	"Decision":               reportDecisions,
}

// required are the fields without which a file is refused.
var required = map[string][]any{
	"Configuration": {"apiVersion", "kind"}, "Plugin": {"name"}, "Enforcement": {"action"}, "Policy": {"rules"}, "Rule": {"name"},
	"MatchCondition": {"name", "expression"}, "LabelSelectorRequirement": {"key", "operator"},
	"RuleWithOperations": {"operations", "apiGroups", "apiVersions", "resources"},
}

// newSchema makes the schema of the configuration file.
func (g *generator) newSchema() (map[string]any, error) {
	c := &configurationSchema{fields: g.fieldComments(), usages: make(map[string]string)}
	cmd, _, err := app.NewCommand().Find([]string{"serve"})
	if err != nil {
		return nil, err
	}
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) { c.usages[strings.ReplaceAll(f.Name, "-", "")] = f.Usage })
	schema := c.of(reflect.TypeFor[config.Configuration]())
	properties := schema["properties"].(map[string]any)
	properties["apiVersion"] = map[string]any{"const": config.APIVersion}
	properties["kind"] = map[string]any{"const": config.Kind}
	var names []any
	for _, plugin := range handlers.InTree(handlers.DefaultOptions()) {
		names = append(names, plugin.Name)
	}
	// Names for completion. A binary can have more plugins.
	name := map[string]any{"anyOf": []any{map[string]any{"enum": names}, map[string]any{"type": "string", "pattern": "^[A-Z]"}}}
	properties["enableAdmissionPlugins"].(map[string]any)["items"] = name
	ofPlugin := properties["plugins"].(map[string]any)["items"].(map[string]any)["properties"].(map[string]any)
	about := ofPlugin["name"].(map[string]any)["description"]
	ofPlugin["name"] = map[string]any{"description": about, "anyOf": name["anyOf"]}
	schema["$schema"], schema["title"] = "https://json-schema.org/draft/2020-12/schema", "Configuration of fastadmit"
	return schema, nil
}

func indented(schema map[string]any) (string, error) {
	text, err := json.MarshalIndent(schema, "", "  ")
	return string(text) + "\n", err
}

func (c *configurationSchema) of(goType reflect.Type) map[string]any {
	if values := enums[goType.Name()]; values != nil {
		return map[string]any{"enum": values}
	}
	switch goType {
	case reflect.TypeFor[metav1.Duration]():
		return map[string]any{"type": "string", "pattern": durationPattern}
	case rawMessage: // in a report a JSON Patch, in the configuration that of a plugin
		if c.definitions == nil {
			return map[string]any{"type": "object"}
		}
		return map[string]any{"type": "array", "items": map[string]any{"type": "object"}}
	case reflect.TypeFor[[]byte]():
		return map[string]any{"type": "string", "contentEncoding": "base64"}
	}
	switch goType.Kind() {
	case reflect.Pointer:
		return c.of(goType.Elem())
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Int, reflect.Int32, reflect.Int64:
		return map[string]any{"type": "integer"}
	case reflect.Slice:
		return map[string]any{"type": "array", "items": c.of(goType.Elem())}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": c.of(goType.Elem())}
	case reflect.Struct:
		if c.definitions != nil {
			return c.defined(goType)
		}
		properties := make(map[string]any)
		c.addFields(goType, properties)
		s := map[string]any{"type": "object", "additionalProperties": false, "properties": properties}
		if names := required[goType.Name()]; names != nil {
			s["required"] = names
		}
		return s
	}
	return map[string]any{"type": "string"}
}

func (c *configurationSchema) addFields(goType reflect.Type, properties map[string]any) {
	docs := map[string]string{}
	if documented, ok := reflect.New(goType).Elem().Interface().(interface{ SwaggerDoc() map[string]string }); ok {
		docs = documented.SwaggerDoc()
	}
	for i := range goType.NumField() {
		f := goType.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" {
			continue
		}
		if name == "" && f.Anonymous {
			c.addFields(f.Type, properties)
			continue
		}
		s := c.of(f.Type)
		about := cmp.Or(docs[name], c.fields[goType.PkgPath()+"."+goType.Name()+"."+f.Name])
		if goType == reflect.TypeFor[config.Server]() {
			about = c.usages[strings.ToLower(name)]
		}
		if about != "" {
			s["description"] = strings.Join(strings.Fields(about), " ")
		}
		properties[name] = s
	}
}

// inFile replaces the Go names of fields in a comment by those in the file.
func inFile(structure *ast.StructType, comment string) string {
	for _, f := range structure.Fields.List {
		if f.Tag == nil {
			continue
		}
		tag, err := strconv.Unquote(f.Tag.Value)
		for _, name := range f.Names {
			inFile, _, _ := strings.Cut(reflect.StructTag(tag).Get("json"), ",")
			if err == nil && inFile != "-" {
				comment = regexp.MustCompile(`\b`+name.Name+`\b`).ReplaceAllString(comment, inFile)
			}
		}
	}
	return comment
}

// commented are the folders of the types that schemas describe.
var commented = []string{
	"internal/config", "admission/match", "internal/registration", "internal/imagereview", "admission", "internal/offline/report",
}

// fieldComments reads the comments of the fields of the configuration's types. A comment applies to all fields after
// it that it names.
func (g *generator) fieldComments() map[string]string {
	comments := make(map[string]string)
	for _, s := range g.sources {
		if !slices.Contains(commented, s.Dir) || s.IsTest {
			continue
		}
		ast.Inspect(s.File, func(node ast.Node) bool {
			spec, ok := node.(*ast.TypeSpec)
			if !ok {
				return true
			}
			structure, ok := spec.Type.(*ast.StructType)
			if !ok {
				return true
			}
			last := ""
			for _, f := range structure.Fields.List {
				last = cmp.Or(f.Doc.Text(), last)
				for _, name := range f.Names {
					if regexp.MustCompile(`\b` + name.Name + `\b`).MatchString(last) {
						comments[Module+"/"+s.Dir+"."+spec.Name.Name+"."+name.Name] = inFile(structure, last)
					}
				}
			}
			return true
		})
	}
	return comments
}

// configurationTable makes a table of a part of the schema, such as "plugins[]". Nested fields have
// rows of their own.
func (g *generator) configurationTable(part string) (string, error) {
	schema := g.schema
	if part != "" {
		for name := range strings.SplitSeq(part, ".") {
			name, isList := strings.CutSuffix(name, "[]")
			properties, _ := schema["properties"].(map[string]any)
			below, ok := properties[name].(map[string]any)
			if !ok {
				return "", fmt.Errorf("the configuration has no %q in %q", name, part)
			}
			if schema = below; isList {
				schema = schema["items"].(map[string]any)
			}
		}
	}
	table := "| field | type | meaning |\n|---|---|---|\n"
	properties := schema["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		p := properties[name].(map[string]any)
		about, _ := p["description"].(string)
		table += fmt.Sprintf("| `%s` | %s | %s |\n", name, typeOf(p), tableCell(about))
	}
	return table, nil
}

// durationPattern is the pattern of a duration in the schema of the configuration.
const durationPattern = `^([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))+$`

func typeOf(schema map[string]any) string {
	if values, ok := schema["enum"].([]any); ok {
		var names []string
		for _, v := range values {
			names = append(names, fmt.Sprintf("`%s`", v))
		}
		return strings.Join(names, ", ")
	}
	if value, ok := schema["const"].(string); ok {
		return "`" + value + "`"
	}
	switch {
	case schema["type"] == "array":
		return "list of " + regexp.MustCompile(`^(string|object|integer)$`).ReplaceAllString(typeOf(schema["items"].(map[string]any)), "${1}s")
	case schema["pattern"] == durationPattern:
		return "duration"
	case schema["type"] == nil:
		return "string"
	}
	return schema["type"].(string)
}
