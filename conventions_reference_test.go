package fastadmit_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cmd/fastadmit/app"
	"github.com/fastadmit/fastadmit/handlers"
	"github.com/fastadmit/fastadmit/internal/config"
)

// flagTable makes a table of the flags of a command.
func flagTable(t *testing.T, command string) string {
	t.Helper()
	cmd, _, err := app.NewCommand().Find([]string{command})
	if err != nil {
		t.Fatal(err)
	}
	table := "| flag | default | meaning |\n|---|---|---|\n"
	rows := 0
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Name == "help" || f.Hidden {
			return
		}
		name, value := "--"+f.Name, ""
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + "`, `" + name
		}
		if f.DefValue != "" && f.DefValue != "[]" {
			value = "`" + f.DefValue + "`"
		}
		table += fmt.Sprintf("| `%s` | %s | %s |\n", name, value, tableCell(f.Usage))
		rows++
	})
	if rows == 0 {
		t.Fatalf("fastadmit %s has no flags", command)
	}
	return table
}

// tableCell makes a text fit for a cell of a Markdown table.
func tableCell(text string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", ">", "&gt;").Replace(strings.Join(strings.Fields(text), " "))
}

// TestConventionsCommands wants a section for each command in docs/flags.md.
func TestConventionsCommands(t *testing.T) {
	page := read(t, "docs/flags.md")
	for _, cmd := range app.NewCommand().Commands() {
		if cmd.Hidden || cmd.Name() == "help" || cmd.Name() == "completion" {
			continue
		}
		if !strings.Contains(page, "\n## fastadmit "+cmd.Name()+"\n") {
			t.Errorf("docs/flags.md has no section on fastadmit %s", cmd.Name())
		}
		if cmd.HasAvailableLocalFlags() && !strings.Contains(page, "<!-- generated: flags "+cmd.Name()+" -->") {
			t.Errorf("docs/flags.md does not have the flags of fastadmit %s", cmd.Name())
		}
	}
}

// metricTable makes a table of all metrics of the calls that make them, and of the help texts.
func metricTable(t *testing.T) string {
	t.Helper()
	kinds, labels := make(map[string]string), make(map[string][]string)
	var texts map[string]string
	for _, s := range sources(t) {
		if s.isTest {
			continue
		}
		if s.name == "internal/server/metrics_help.go" {
			texts = helpTexts(t, &s)
		}
		ast.Inspect(s.File, func(node ast.Node) bool {
			call, ok := node.(*ast.CallExpr)
			if !ok {
				return true
			}
			if method, ok := call.Fun.(*ast.SelectorExpr); ok && metricNames[method.Sel.Name] != nil {
				for name, used := range seriesOf(call) {
					kinds[name] = kindOf(method.Sel.Name)
					labels[name] = append(labels[name], used...)
				}
			}
			return true
		})
	}
	table := "| metric | type | labels | meaning |\n|---|---|---|---|\n"
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		all := slices.Compact(slices.Sorted(slices.Values(labels[name])))
		table += fmt.Sprintf("| `%s` | %s | %s | %s |\n", name, cmp.Or(kinds[name], "gauge"), strings.Join(all, ", "), tableCell(texts[name]))
	}
	return table
}

func kindOf(method string) string {
	switch {
	case strings.HasSuffix(method, "Counter"):
		return "counter"
	case strings.HasSuffix(method, "Gauge"):
		return "gauge"
	}
	return "histogram"
}

// seriesOf returns the names of the series in a call, with their labels.
func seriesOf(call *ast.CallExpr) map[string][]string {
	all := make(map[string][]string)
	ast.Inspect(call, func(node ast.Node) bool {
		literal, ok := node.(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			return true
		}
		text, err := strconv.Unquote(literal.Value)
		if series := metricSeries.FindStringSubmatch(text); err == nil && series != nil {
			all[series[1]] = nil
			for _, label := range metricLabel.FindAllStringSubmatch(series[2], -1) {
				all[series[1]] = append(all[series[1]], label[1])
			}
		}
		return true
	})
	return all
}

// helpTexts reads the map of help texts.
func helpTexts(t *testing.T, s *source) map[string]string {
	t.Helper()
	texts := make(map[string]string)
	ast.Inspect(s.File, func(node ast.Node) bool {
		pair, ok := node.(*ast.KeyValueExpr)
		if !ok {
			return true
		}
		key, isKey := pair.Key.(*ast.BasicLit)
		value, isValue := pair.Value.(*ast.BasicLit)
		if isKey && isValue {
			name, err := strconv.Unquote(key.Value)
			if err != nil {
				t.Fatal(err)
			}
			if texts[name], err = strconv.Unquote(value.Value); err != nil {
				t.Fatal(err)
			}
		}
		return true
	})
	return texts
}

// A configurationSchema makes a JSON schema of the configuration file from its Go types.
type configurationSchema struct {
	fields map[string]string // comments of fields, by package, type and field
	usages map[string]string // of the flags of serve
}

// enums are the values of types that have few, and of fields that do.
var enums = map[string][]any{
	"Action":                 {string(admission.ActionDeny), string(admission.ActionWarn), string(admission.ActionAudit)},
	"FailurePolicyType":      {string(admissionregistrationv1.Fail), string(admissionregistrationv1.Ignore)},
	"ReinvocationPolicyType": {string(admissionregistrationv1.NeverReinvocationPolicy), string(admissionregistrationv1.IfNeededReinvocationPolicy)},
	"MatchPolicyType":        {string(admissionregistrationv1.Equivalent), string(admissionregistrationv1.Exact)},
	"OperationType":          {"CREATE", "UPDATE", "DELETE", "CONNECT", "*"},
	"ScopeType":              {"Cluster", "Namespaced", "*"},
	"LabelSelectorOperator":  {"In", "NotIn", "Exists", "DoesNotExist"},
}

// required are the fields without which a file is refused.
var required = map[string][]any{
	"Configuration": {"apiVersion", "kind"}, "Plugin": {"name"}, "Enforcement": {"action"}, "Policy": {"rules"}, "Rule": {"name"},
	"MatchCondition": {"name", "expression"}, "LabelSelectorRequirement": {"key", "operator"},
	"RuleWithOperations": {"operations", "apiGroups", "apiVersions", "resources"},
}

func newConfigurationSchema(t *testing.T) map[string]any {
	t.Helper()
	c := &configurationSchema{fields: fieldComments(t), usages: make(map[string]string)}
	cmd, _, err := app.NewCommand().Find([]string{"serve"})
	if err != nil {
		t.Fatal(err)
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
	return schema
}

func (c *configurationSchema) of(goType reflect.Type) map[string]any {
	if values := enums[goType.Name()]; values != nil {
		return map[string]any{"enum": values}
	}
	switch goType {
	case reflect.TypeFor[metav1.Duration]():
		return map[string]any{"type": "string", "pattern": durationPattern}
	case reflect.TypeFor[[]byte]():
		return map[string]any{"type": "string", "contentEncoding": "base64"}
	}
	switch goType.Kind() {
	case reflect.Pointer:
		return c.of(goType.Elem())
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Int32, reflect.Int64:
		return map[string]any{"type": "integer"}
	case reflect.Slice:
		return map[string]any{"type": "array", "items": c.of(goType.Elem())}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": c.of(goType.Elem())}
	case reflect.Struct:
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

// fieldComments reads the comments of the fields of the configuration's types. A comment is that of the fields behind it
// that it names.
func fieldComments(t *testing.T) map[string]string {
	t.Helper()
	comments := make(map[string]string)
	for _, s := range sources(t) {
		if !slices.Contains([]string{"internal/config", "admission/match", "internal/registration", "internal/imagereview"}, s.dir) || s.isTest {
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
						comments[module+"/"+s.dir+"."+spec.Name.Name+"."+name.Name] = inFile(structure, last)
					}
				}
			}
			return true
		})
	}
	return comments
}

// TestConventionsConfigurationSchema makes docs/configuration.schema.json of the Go types.
func TestConventionsConfigurationSchema(t *testing.T) {
	const file = "docs/configuration.schema.json"
	text, err := json.MarshalIndent(newConfigurationSchema(t), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	want := string(text) + "\n"
	if *update {
		writeFile(t, file, want)
	}
	if read(t, file) != want {
		t.Errorf("%s is not current: make docs writes it anew", file)
	}
}

// configurationTable makes a table of a part of the schema, such as "plugins[]". What is below it has its own rows.
func configurationTable(t *testing.T, part string) string {
	t.Helper()
	schema := newConfigurationSchema(t)
	if part != "" {
		for name := range strings.SplitSeq(part, ".") {
			name, isList := strings.CutSuffix(name, "[]")
			schema = schema["properties"].(map[string]any)[name].(map[string]any)
			if isList {
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
	return table
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

// resourceTable makes a table of the fields in the CustomResourceDefinition of a kind. It leaves out what is below a selector.
func resourceTable(t *testing.T, file, kind string) string {
	t.Helper()
	for document := range strings.SplitSeq(read(t, file), "\n---\n") {
		var definition struct {
			Spec struct {
				Names    struct{ Kind string }
				Versions []struct {
					Schema struct{ OpenAPIV3Schema map[string]any }
				}
			}
		}
		if err := yaml.Unmarshal([]byte(document), &definition); err != nil {
			t.Fatal(err)
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
		return table
	}
	t.Fatalf("%s has no %s", file, kind)
	return ""
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
