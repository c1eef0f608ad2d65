package suite

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/meta"
	kjson "sigs.k8s.io/json"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/discovery"
	"github.com/fastadmit/fastadmit/internal/files"
	"github.com/fastadmit/fastadmit/internal/offline/manifest"
	"github.com/fastadmit/fastadmit/internal/offline/policies"
	"github.com/fastadmit/fastadmit/internal/offline/review"
	"github.com/fastadmit/fastadmit/internal/printable"
)

// Convert writes what a test of Kyverno or Gatekeeper says as a Suite in YAML, for the folder of the test. errs are about
// what a Suite cannot say; the cases that they are about are left out. isForeign is false for other files, which must be Suites.
func Convert(file File) (text []byte, isForeign bool, errs []error) {
	f, isKyverno, err := openForeign(file)
	switch {
	case err != nil:
		return nil, true, []error{err}
	case f == nil:
		if _, err := Read(file); err != nil { // it is not one of ours either
			errs = []error{err}
		}
		return nil, false, errs
	}
	c := &conversion{foreignFile: f, suite: mapping(), cases: &yaml.Node{Kind: yaml.SequenceNode}}
	c.names, c.faulty, c.left = make(map[string]bool), make(map[string]bool), make(map[string]bool)
	if isKyverno {
		err = c.kyverno()
	} else {
		err = c.gatekeeper()
	}
	switch {
	case errors.Is(err, errNothing):
		return nil, true, c.errs
	case err != nil:
		return nil, true, append(c.errs, err)
	case c.bytes > files.BytesMax:
		return nil, true, append(c.errs, f.document.Errorf("", "the suite would have more than %d bytes of objects and names, the maximum of a file; name "+
			"fewer resources in a row, or divide the test", files.BytesMax))
	case len(c.cases.Content) == 0:
		return nil, true, append(c.errs, f.document.Errorf("", "no case is left, and a suite has at least one"))
	}
	text, err = c.write()
	if err != nil {
		return nil, true, append(c.errs, err)
	}
	return text, true, c.errs
}

// A conversion makes a Suite.
type conversion struct {
	*foreignFile
	suite   *yaml.Node // its fields, without the cases
	cases   *yaml.Node
	names   map[string]bool // of the cases
	faulty  map[string]bool // the paths of cases and rows that have errors
	left    map[string]bool // the fields that the other engine does not read
	skipped []string        // cases that the test skips
	errs    []error
	bytes   int // of objects and names
}

func (c *conversion) refuse(path, format string, args ...any) {
	c.errs = append(c.errs, c.document.Errorf(path, format, args...))
}

// errNothing is returned if the errors of a conversion are about all cases.
var errNothing = errors.New("there is no translation")

// write returns the YAML of the suite.
func (c *conversion) write() ([]byte, error) {
	root := mapping("apiVersion", APIVersion, "kind", Kind)
	root.Content = append(root.Content, c.suite.Content...)
	set(root, "cases", c.cases)
	comments := []string{"From " + printable.Word(c.file) + ", for its folder."}
	if len(c.left) > 0 {
		comments = append(comments, "Without fields that no result depends on: "+
			printable.Word(strings.Join(slices.Sorted(maps.Keys(c.left)), ", "))+".")
	}
	for _, name := range c.skipped {
		comments = append(comments, "Without a case that is skipped there: "+printable.Word(name)+".")
	}
	root.HeadComment = "# " + strings.Join(comments, "\n# ")
	var b bytes.Buffer
	encoder := yaml.NewEncoder(&b)
	const indent = 2
	encoder.SetIndent(indent)
	if err := encoder.Encode(root); err != nil {
		return nil, err
	}
	if err := encoder.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// mapping returns an object with members: names and values in turn.
func mapping(members ...any) *yaml.Node {
	node := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	for i := 0; i+1 < len(members); i += 2 {
		set(node, fmt.Sprint(members[i]), members[i+1])
	}
	return node
}

// set adds a member to an object.
func set(object *yaml.Node, name string, value any) {
	node, ok := value.(*yaml.Node)
	if !ok {
		node = new(yaml.Node)
		_ = node.Encode(value) // values of JSON, which have a node
	}
	object.Content = append(object.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: name}, node)
}

// addCase adds a case, with a name that no other case has.
func (c *conversion) addCase(name string, members *yaml.Node) {
	unique := name
	for n := 2; unique == "" || c.names[unique]; n++ {
		unique = strings.TrimSpace(name + " (" + strconv.Itoa(n) + ")")
	}
	c.names[unique] = true
	c.cases.Content = append(c.cases.Content, mapping("name", unique))
	last := c.cases.Content[len(c.cases.Content)-1]
	last.Content = append(last.Content, members.Content...)
}

// given returns a path that the test names, as a suite names it.
func (c *conversion) given(name string) string {
	folder := filepath.Dir(c.file)
	if relative, err := filepath.Rel(folder, filepath.Join(folder, name)); err == nil {
		return relative
	}
	return filepath.Join(folder, name)
}

// object returns an object in YAML.
func (c *conversion) object(path string, item *manifest.Item) *yaml.Node {
	c.bytes += len(item.JSON)
	if c.bytes > files.BytesMax {
		return mapping() // Convert reports it
	}
	node, err := policies.Node(item.JSON)
	if err != nil {
		c.refuse(path, "%v", err)
		return mapping()
	}
	return node
}

// definitions returns CustomResourceDefinitions of the kinds of objects that are not known. They make the kinds those that the
// other engine takes them for. faults has, by the index of an object, why a suite cannot have it.
func (c *conversion) definitions(path string, table *discovery.Table, items []manifest.Item) (all []*yaml.Node, faults map[int]string) {
	faults = make(map[int]string)
	for i := range items {
		gvk := items[i].GroupVersionKind()
		if _, err := table.Find(gvk); err == nil {
			continue
		}
		guess, _ := meta.UnsafeGuessKindToResource(gvk)
		definition := map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": guess.GroupResource().String()},
			"spec": map[string]any{
				"group": gvk.Group, "scope": "Namespaced", "names": map[string]any{"kind": gvk.Kind, "plural": guess.Resource},
				"versions": []any{map[string]any{"name": gvk.Version, "served": true, "storage": true}},
			},
		}
		text, err := json.Marshal(definition)
		if err == nil {
			err = table.AddCRD(text)
		}
		if err != nil {
			faults[i] = fmt.Sprintf("%s: the kind %s of %s is unknown, and %v", items[i].Source, gvk.Kind, gvk.GroupVersion(), err)
			continue
		}
		all = append(all, c.object(path, &manifest.Item{Object: manifest.Object{JSON: text}}))
	}
	return all, faults
}

// request adds the fields of a case that say who does what.
func request(members *yaml.Node, operation codec.Operation, user *review.User) {
	if operation != "" && operation != codec.Create {
		set(members, "operation", string(operation))
	}
	if user.Username == "" && user.UID == "" && len(user.Groups)+len(user.Extra) == 0 {
		return
	}
	text, _ := json.Marshal(user) // it was decoded from JSON
	var fields map[string]any
	_ = kjson.UnmarshalCaseSensitivePreserveInts(text, &fields)
	set(members, "user", fields)
}

// isOperation reports whether a suite can have an operation.
func isOperation(operation codec.Operation) bool {
	return slices.Contains([]codec.Operation{"", codec.Create, codec.Update, codec.Delete}, operation)
}

// indexes are those in a path.
var indexes = regexp.MustCompile(`\[\d+\]`)

// member returns the text of a member of a JSON object.
func member(text json.RawMessage, name string) json.RawMessage {
	var object map[string]json.RawMessage
	_ = kjson.UnmarshalCaseSensitivePreserveInts(text, &object) // decoding the whole document reports errors
	return object[name]
}

// elements returns the texts of the elements of a list that is a member of a JSON object.
func elements(text json.RawMessage, name string) (all []json.RawMessage) {
	_ = kjson.UnmarshalCaseSensitivePreserveInts(member(text, name), &all) // as above
	return all
}

// members refuses the members of an object that are neither known nor ignored. Those that the other engine ignores are
// noted.
func (c *conversion) members(path string, text json.RawMessage, known, ignored []string) {
	var all map[string]json.RawMessage
	if kjson.UnmarshalCaseSensitivePreserveInts(text, &all) != nil {
		return // decoding the whole document reports it
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		below := strings.TrimPrefix(path+"."+name, ".")
		switch {
		case slices.Contains(known, name), string(all[name]) == "null":
		case slices.ContainsFunc(ignored, func(of string) bool { return strings.EqualFold(of, name) }): // as the other engine decodes names
			c.left[indexes.ReplaceAllString(below, "[]")] = true
		default:
			c.refuse(below, "a suite cannot say it; remove it from a copy of the test if no result depends on it")
		}
	}
}
