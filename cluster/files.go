package cluster

import (
	"bytes"
	"embed"
	encodingjson "encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/internal/files"
)

// embedded has the objects of a new cluster.
//
//go:embed default/*.yaml
var embedded embed.FS

// stateBytesMax is the largest file of Options.Dir: 50,000 Pods of 10 KB, as
// "kubectl get pods -A -o yaml" prints them.
const stateBytesMax = 512 << 20

// extensions are the extensions of files that are read, the same as in kubectl -f.
var extensions = []string{".yaml", ".yml", ".json"}

// read fills the stores with the objects in files or in Options.Objects. The error joins
// all errors in them.
func (s *State) read() error {
	r := &reader{state: s, decoders: make(map[*Kind]runtime.Decoder), seen: make(map[identity]string)}
	var err error
	switch dir := s.options.Dir; {
	case dir != "":
		in := func(name string) string { return filepath.Join(dir, name) }
		read := func(name string) ([]byte, error) { return files.ReadAtMost(in(name), stateBytesMax) }
		r.others = s.options.Others
		err = r.readDir(os.DirFS(dir), ".", read, in)
		r.refuseOthers()
	case s.options.Embedded:
		read := func(name string) ([]byte, error) { return embedded.ReadFile(path.Join("default", name)) }
		err = r.readDir(embedded, "default", read, func(name string) string { return path.Join("embedded", name) })
		s.find(Namespaces.Kind).files.assumed = func(string) bool { return true }
		// kube-controller-manager creates one in every namespace.
		s.find(ServiceAccounts.Kind).files.assumed = func(name string) bool { return name == "default" }
	}
	for i, object := range s.options.Objects {
		at := fmt.Sprintf("object %d", i)
		r.readObject(at, object)
	}
	return errors.Join(append([]error{err}, r.errs...)...)
}

// A reader reads files into stores.
type reader struct {
	state    *State
	decoders map[*Kind]runtime.Decoder // made when the first object of a kind is read
	seen     map[identity]string       // the place of each object, for errors
	errs     []error

	others func(kind schema.GroupVersionKind, document []byte) error // see Options.Others
	first  []other                                                   // of each kind for others
	met    map[schema.GroupVersionKind]bool                          // their kinds
}

// other is an object of a kind that nothing reads.
type other struct {
	at       string
	kind     schema.GroupVersionKind
	document []byte
}

// An identity identifies an object.
type identity struct {
	kind *Kind
	name cache.ObjectName
}

// readDir reads the files of a folder, without subfolders. shown returns the name of a
// file for errors.
func (r *reader) readDir(in fs.FS, dir string, read func(name string) ([]byte, error), shown func(name string) string) error {
	entries, err := fs.ReadDir(in, dir)
	if err != nil {
		if fault, ok := errors.AsType[*fs.PathError](err); ok {
			err = fault.Err // its path is that in the folder
		}
		return fmt.Errorf("cluster state: cannot read %s: %w", shown(""), err)
	}
	count := 0
	for _, entry := range entries {
		if entry.IsDir() || !slices.Contains(extensions, path.Ext(entry.Name())) {
			continue
		}
		count++
		content, err := read(entry.Name())
		if err != nil {
			r.errs = append(r.errs, fmt.Errorf("cluster state: cannot read %s: %w", shown(entry.Name()), err))
			continue
		}
		r.readFile(shown(entry.Name()), content)
	}
	if count == 0 {
		return fmt.Errorf("cluster state: %s has no file that ends in one of %q", shown(""), extensions)
	}
	return nil
}

// jsonObject is the beginning of an object of JSON. A mapping of YAML may begin with a brace too.
var jsonObject = regexp.MustCompile(`^\s*\{\s*["}]`)

// readFile reads the documents of a file.
func (r *reader) readFile(file string, content []byte) {
	n := 0
	for line, document := range documents(content) {
		n++
		at := fmt.Sprintf("%s:%d: document %d", file, line, n)
		asJSON := document
		if !jsonObject.Match(document) {
			var err error
			if asJSON, err = yaml.YAMLToJSONStrict(document); err != nil {
				// Decode it again behind as many empty lines, so that the error has the line in the file.
				_, err = yaml.YAMLToJSONStrict(append(bytes.Repeat([]byte("\n"), line-1), document...))
				r.refuse(at, err)
				continue
			}
		}
		if string(bytes.TrimSpace(asJSON)) != "null" { // null: the document has only comments
			r.readDocument(at, asJSON)
		}
	}
}

// documents yields the documents of a file and their first lines. A document starts
// with a line that starts with "---", and may end with the line "..." (YAML 1.2.2,
// section 9.1). The YAML library reads only the first document.
func documents(content []byte) iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		begin, first := 0, 1 // offset and line of the current document
		at, line := 0, 0
		for text := range bytes.Lines(content) {
			line++
			starts, ends := bytes.HasPrefix(text, []byte("---")), string(bytes.TrimSpace(text)) == "..."
			if starts || ends {
				if at > begin && !yield(first, content[begin:at]) {
					return
				}
				begin, first = at, line
			}
			at += len(text)
			if ends {
				begin, first = at, line+1
			}
		}
		if at > begin {
			yield(first, content[begin:])
		}
	}
}

// readDocument adds an object, or each object of a list, to the stores of all Kinds with
// its apiVersion and kind, except those that have it already.
func (r *reader) readDocument(at string, document []byte, except ...*Kind) {
	gvk, err := json.DefaultMetaFactory.Interpret(document)
	if err != nil {
		r.refuse(at, err)
		return
	}
	if *gvk == listKind {
		list := new(metav1.List)
		if _, _, err := r.decoder(Namespaces.Kind).Decode(document, nil, list); err != nil {
			r.refuse(at, err)
			return
		}
		r.readItems(at, list)
		return
	}
	// No plugin reads CustomResourceDefinitions, but a folder may have them.
	known := len(except) > 0 || r.others == nil && gvk.Group == "apiextensions.k8s.io" && gvk.Kind == "CustomResourceDefinition"
	for _, kind := range r.state.kinds {
		if !kind.reads(*gvk) || slices.Contains(except, kind) {
			continue
		}
		known = true
		decoded, err := r.decode(kind, document)
		if err != nil {
			r.refuse(at, err)
			return
		}
		if !r.addAll(at, kind, decoded) {
			return
		}
	}
	if !known {
		r.readOther(other{at, *gvk, document})
	}
}

// readOther reads an object of a kind that nothing reads. What is read in another version is an error.
func (r *reader) readOther(o other) {
	want := r.state.kinds
	if r.others != nil {
		want = slices.DeleteFunc(slices.Clone(want), func(k *Kind) bool {
			return k.list == nil || k.version.Group != o.kind.Group || k.name != o.kind.Kind && k.listName != o.kind.Kind
		})
	}
	switch {
	case r.others == nil || len(want) > 0:
		r.refuse(o.at, fmt.Errorf("got kind %q of apiVersion %q, want one of %s, or a list of them", o.kind.Kind, o.kind.GroupVersion(),
			shownKinds(want)))
	case o.kind.Group == "apiextensions.k8s.io":
		r.refuse(o.at, r.others(o.kind, o.document))
	case !r.met[o.kind]:
		if r.met == nil {
			r.met = make(map[schema.GroupVersionKind]bool)
		}
		r.met[o.kind], r.first = true, append(r.first, o)
	}
}

// refuseOthers refuses objects of kinds that nothing reads, if something is wrong with them.
func (r *reader) refuseOthers() {
	for _, o := range r.first {
		r.refuse(o.at, r.others(o.kind, o.document))
	}
}

// listKind is the kind of lists of objects of any kind.
var listKind = schema.GroupVersionKind{Version: "v1", Kind: "List"}

func (r *reader) readItems(at string, list *metav1.List) {
	for i, item := range list.Items {
		r.readDocument(fmt.Sprintf("%s: items[%d]", at, i), item.Raw)
	}
}

// reads reports whether gvk is the kind of k or of its lists. It is false for kinds
// without lists, whose objects are not stored.
func (k *Kind) reads(gvk schema.GroupVersionKind) bool {
	return k.list != nil && gvk.GroupVersion() == k.version && (gvk.Kind == k.name || gvk.Kind == k.listName)
}

// decode decodes an object. A field that objects of the kind do not have is an error.
func (r *reader) decode(kind *Kind, document []byte) (runtime.Object, error) {
	strict := kind
	if kind.whole != nil {
		strict = kind.whole
	}
	decoded, _, err := r.decoder(strict).Decode(document, nil, nil)
	if err == nil && kind.whole != nil {
		decoded, _, err = r.state.find(kind).decoder().Decode(document, nil, nil)
	}
	return decoded, err
}

func (r *reader) decoder(kind *Kind) runtime.Decoder {
	decoder := r.decoders[kind]
	if decoder == nil {
		decoder = kind.codecs(serializer.EnableStrict).UniversalDeserializer()
		r.decoders[kind] = decoder
	}
	return decoder
}

// readObject adds an object of Options.Objects, or each object of a list, to the stores.
// Kinds with another Go type get it as JSON.
func (r *reader) readObject(at string, object runtime.Object) {
	if list, ok := object.(*metav1.List); ok {
		r.readItems(at, list)
		return
	}
	named := object.DeepCopyObject()
	var same []*Kind
	for _, kind := range r.state.kinds {
		name, ok := kind.nameOf(object)
		switch {
		case ok && !r.addAll(at, kind, object):
			return
		case ok:
			same = append(same, kind)
		case kind.whole != nil:
			name, ok = kind.whole.nameOf(object)
		}
		if ok {
			named.GetObjectKind().SetGroupVersionKind(kind.version.WithKind(name))
		}
	}
	document, err := encodingjson.Marshal(named)
	if err != nil {
		r.refuse(at, err)
		return
	}
	if gvk, err := json.DefaultMetaFactory.Interpret(document); err != nil || gvk.Kind == "" {
		r.refuse(at, fmt.Errorf("got a %T without apiVersion and kind, want them set to one of %s", object, r.supportedKinds()))
		return
	}
	r.readDocument(at, document, same...)
}

// nameOf returns the field kind of an object or list that has a Go type of k. ok is false
// if it has another type.
func (k *Kind) nameOf(object runtime.Object) (name string, ok bool) {
	if _, isJSON := k.object.(*JSON); isJSON || k.list == nil {
		return "", false
	}
	switch reflect.TypeOf(object) {
	case reflect.TypeOf(k.object):
		return k.name, true
	case reflect.TypeOf(k.list):
		return k.listName, true
	}
	return "", false
}

// addAll adds an object, or each object of a list, to the store of a kind. It returns
// false after an error.
func (r *reader) addAll(at string, kind *Kind, decoded runtime.Object) bool {
	if reflect.TypeOf(decoded) != reflect.TypeOf(kind.list) {
		return r.add(at, kind, decoded.(Object))
	}
	items, err := meta.ExtractList(decoded)
	if err != nil {
		r.refuse(at, err)
		return false
	}
	for i, item := range items {
		if !r.add(fmt.Sprintf("%s: items[%d]", at, i), kind, item.(Object)) {
			return false
		}
	}
	return true
}

// add adds an object to the store of its kind. It returns false after an error.
func (r *reader) add(at string, kind *Kind, object Object) bool {
	errs := len(r.errs)
	if reflect.ValueOf(object).IsNil() {
		r.refuse(at, fmt.Errorf("%s: got null, want an object", kind.name))
		return false
	}
	name := cache.MetaObjectToName(object)
	shown := fmt.Sprintf("%s %q", kind.name, name)
	other, twice := r.seen[identity{kind, name}]
	switch {
	case name.Name == "":
		r.refuse(at, fmt.Errorf("%s: metadata.name is missing", kind.name))
	case kind.namespaced && name.Namespace == "":
		r.refuse(at, fmt.Errorf("%s: metadata.namespace is missing", shown))
	case !kind.namespaced && name.Namespace != "":
		r.refuse(at, fmt.Errorf("%s: got a metadata.namespace, want none: the kind is not namespaced", shown))
	case twice:
		r.refuse(at, fmt.Errorf("%s is also in %s", shown, other))
	default:
		r.seen[identity{kind, name}] = at
		object = object.DeepCopyObject().(Object)
		if kind.setDefaults != nil {
			kind.setDefaults(object)
		}
		r.refuse(at, r.state.find(kind).files.write(object))
	}
	return len(r.errs) == errs
}

// refuse records the error of a document, unless err is nil.
func (r *reader) refuse(at string, err error) {
	if err != nil {
		r.errs = append(r.errs, fmt.Errorf("cluster state: %s: %w", at, err))
	}
}

// supportedKinds lists the kinds that files may contain.
func (r *reader) supportedKinds() string { return shownKinds(r.state.kinds) }

// shownKinds lists the kinds that have objects in files.
func shownKinds(kinds []*Kind) string {
	var known []string
	for _, kind := range kinds {
		if kind.list == nil {
			continue
		}
		known = append(known, fmt.Sprintf("%s (%s)", kind.name, kind.version))
	}
	slices.Sort(known)
	return strings.Join(slices.Compact(known), ", ")
}
