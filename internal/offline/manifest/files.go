package manifest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fastadmit/fastadmit/internal/files"
	"github.com/fastadmit/fastadmit/internal/strictyaml"
)

// Extensions are the extensions of the files that Read reads in a folder. They are those of
// kubectl (k8s.io/cli-runtime pkg/resource FileExtensions).
var Extensions = []string{".json", ".yaml", ".yml"}

// fileBytesMax is the largest file that Read reads in a Tree, as for files with the state of a
// cluster: 50,000 Pods of 10 KB.
const fileBytesMax = 512 << 20

// A file is one to read.
type file struct {
	name    string
	tree    files.Tree
	hidden  bool   // it, or a folder below the one that was named, begins with a dot
	root    string // the folder that was named, "" for none
	chart   string // the folder of the Helm chart that it is a part of, "" for none
	content []byte
	err     error
}

// Read reads objects from files, from folders and their subfolders, and from stdin, if it is
// not nil, for the path "-". A file or document that cannot be read is an Item with a Fault; the others
// are read nevertheless. Items are in the order of paths; those of a folder are in the
// order of the file names, and those of a file in the order of the text. Folders named .git
// are skipped. In other files and folders whose names begin with a dot, which "kubectl apply
// --filename" reads as well, documents that are no Kubernetes objects are skipped. tree
// returns the Tree for a path; what leads out of it is an Item with a Fault.
//
// The templates and values of a Helm chart are no objects, and neither is a kustomization: an Item with an *UnrenderedError
// says so, one for all files of a folder. An Item with an *OtherFilesError stands for all files of a folder that have nothing
// for kubectl.
func Read(paths []string, stdin io.Reader, tree func(path string) files.Tree) []Item {
	var all []file
	for _, path := range paths {
		all = append(all, expand(path, stdin, tree(path))...)
	}
	items := make([][]Item, len(all))
	parallel(len(all), func(i int) {
		f := &all[i]
		f.read()
		if f.err != nil {
			items[i] = []Item{faulty(Source{File: f.name}, f.err)}
			return
		}
		items[i] = Parse(f.name, f.content)
		if f.root != "" && f.chart == "" && !mayHaveManifest.Match(f.content) && utf8.Valid(f.content) {
			forgive(items[i])
		}
		f.content = nil
		if f.hidden {
			items[i] = slices.DeleteFunc(items[i], func(item Item) bool { return isNoObject(item) || isTemplate(item) })
		}
	})
	noted := make(map[string]*UnrenderedError)
	for i := range all {
		if source := all[i].unrendered(); source != nil {
			items[i] = source.replace(items[i], noted)
		}
	}
	others := make(map[string]*OtherFilesError)
	for i := range all {
		if f := &all[i]; f.root != "" && len(items[i]) > 0 && !slices.ContainsFunc(items[i], isForKubectl) {
			items[i] = noteOther(f, others)
		}
	}
	return slices.Concat(items...)
}

// mayHaveManifest matches a file that may have an object of Kubernetes, even if a part of it cannot be read: the names of its members can
// also be written with escapes.
var mayHaveManifest = regexp.MustCompile(`(?i)apiVersion|["']kind["']\s*:|\bkind\s*:(?:\s|$)|\\[ux\r\n]`)

// forgive makes documents that cannot be read documents for another program, as a tsconfig.json with comments is.
func forgive(items []Item) {
	for i := range items {
		items[i].Fault.Err = new(NoObjectError)
	}
}

// unrendered returns the error for the documents of the file that are no objects before a program renders
// them, nil if there is no such program.
func (f *file) unrendered() *UnrenderedError {
	switch name := filepath.Base(f.name); {
	case f.chart != "":
		return &UnrenderedError{Folder: f.chart, What: "a Helm chart", Command: "helm template",
			Until: "its templates are not reviewed"}
	case slices.Contains(kustomizations, name):
		return NewKustomizationError(f.name)
	}
	return nil
}

// IsKustomization reports whether objects of a kind are read by kustomize only.
func IsKustomization(t schema.GroupVersionKind) bool { return t.Group == "kustomize.config.k8s.io" }

// NewKustomizationError returns the error for a file of kustomize.
func NewKustomizationError(file string) *UnrenderedError {
	return &UnrenderedError{Folder: filepath.Dir(file), What: "a kustomization", Command: "kustomize build",
		Until: "the files beside it are reviewed without its changes"}
}

// kustomizations are the names of the file that kustomize reads (sigs.k8s.io/kustomize api/konfig
// RecognizedKustomizationFileNames) and that end as Extensions do.
var kustomizations = []string{"kustomization.yaml", "kustomization.yml"}

// An UnrenderedError means that documents are no objects before a program renders them.
type UnrenderedError struct {
	Folder, What, Command string
	Until                 string // what is reviewed if nobody renders them
	// Templates is true if some are not even YAML, so that there may be objects in them.
	Templates bool
}

func (e *UnrenderedError) Error() string {
	return fmt.Sprintf("%s: render it first, as in %s %s | fastadmit review -; until then, %s",
		e.What, e.Command, shellWord(e.Folder), e.Until)
}

// shellWord returns the name of a folder as an argument in a command of a shell. Whoever opens a pull
// request chooses the name.
func shellWord(folder string) string {
	if strings.HasPrefix(folder, "-") {
		folder = "./" + folder
	}
	if shellWords.MatchString(folder) {
		return folder
	}
	return "'" + strings.ReplaceAll(folder, "'", `'\''`) + "'"
}

// shellWords need no quotation marks.
var shellWords = regexp.MustCompile(`^[A-Za-z0-9_./-]+$`)

// replace replaces the items that kubectl cannot read as objects either by one for the folder, or by
// none if the folder is noted. Objects that kubectl would read stay.
func (e *UnrenderedError) replace(items []Item, noted map[string]*UnrenderedError) []Item {
	var rest []Item
	for _, item := range items {
		isTemplate := isSyntaxError(item)
		if !isTemplate && !isNoObject(item) {
			rest = append(rest, item)
			continue
		}
		if noted[e.Folder] == nil {
			noted[e.Folder] = e
			rest = append(rest, faulty(Source{File: e.Folder}, e))
		}
		noted[e.Folder].Templates = noted[e.Folder].Templates || isTemplate
	}
	return rest
}

// An OtherFilesError means that files of a folder are for other programs: in none of them does a document
// have an apiVersion or a kind. kubectl refuses such files.
type OtherFilesError struct {
	Files int
	First string // the name of the first one
}

func (e *OtherFilesError) Error() string {
	if e.Files == 1 {
		return e.First + " has no manifest: no apiVersion, no kind"
	}
	return fmt.Sprintf("%d files have no manifests: no apiVersion, no kind; the first one is %s", e.Files, e.First)
}

// noteOther counts a file, and returns an item if it is the first one of the folder that was named.
func noteOther(f *file, others map[string]*OtherFilesError) (item []Item) {
	noted := others[f.root]
	if noted == nil {
		noted = &OtherFilesError{First: f.name}
		others[f.root], item = noted, []Item{faulty(Source{File: f.root}, noted)}
	}
	noted.Files++
	return item
}

// isForKubectl reports whether an item is an object or something that was meant to be one.
func isForKubectl(item Item) bool {
	if item.Fault == nil {
		return true
	}
	none, ok := errors.AsType[*NoObjectError](item.Fault)
	return !ok || *none != NoObjectError{}
}

// chartOf returns the folder of the Helm chart that a file is a part of, "" for none. It does not look above the working folder for
// a relative path.
func chartOf(path string, tree files.Tree) (chart string) {
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		if info, err := tree.Stat(filepath.Join(dir, "Chart.yaml")); err == nil && info.Mode().IsRegular() {
			chart = dir
		}
		if dir == filepath.Dir(dir) || filepath.Base(dir) == ".." {
			return chart
		}
	}
}

// setCharts sets chart and root of the files of a folder.
func setCharts(all []file, root string) {
	charts := make(map[string]bool)
	for i := range all {
		if all[i].root = root; filepath.Base(all[i].name) == "Chart.yaml" {
			charts[filepath.Dir(all[i].name)] = true
		}
	}
	if len(charts) == 0 {
		return
	}
	for i := range all {
		for dir := filepath.Dir(all[i].name); ; dir = filepath.Dir(dir) {
			if charts[dir] {
				all[i].chart = dir // the outermost: it renders those below
			}
			if dir == filepath.Clean(root) || dir == filepath.Dir(dir) {
				break
			}
		}
	}
}

// read reads the file, if that is not done.
func (f *file) read() {
	switch {
	case f.err != nil || f.content != nil:
	case f.tree == "": // also a pipe
		f.content, f.err = os.ReadFile(f.name)
	default:
		f.content, f.err = f.tree.ReadAtMost(f.name, fileBytesMax)
	}
}

// expand returns the files that a path stands for.
func expand(path string, stdin io.Reader, tree files.Tree) []file {
	if path == "-" && stdin != nil {
		content, err := io.ReadAll(stdin)
		return []file{{name: Stdin, content: append([]byte{}, content...), err: err}}
	}
	info, err := tree.Stat(path)
	if err != nil {
		return []file{{name: path, err: err}}
	}
	if !info.IsDir() {
		return []file{{name: path, tree: tree, chart: chartOf(path, tree)}}
	}
	var found []file
	// The errors are kept with the names.
	_ = filepath.WalkDir(path, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			found = append(found, file{name: name, err: err})
		case entry.IsDir() && entry.Name() == ".git":
			return fs.SkipDir
		case slices.Contains(Extensions, filepath.Ext(name)) && isFile(tree, name, entry):
			below, _ := filepath.Rel(path, name) // which is below it
			isHidden := strings.Contains(string(filepath.Separator)+below, string(filepath.Separator)+".")
			found = append(found, file{name: name, tree: tree, hidden: isHidden})
		}
		return nil
	})
	if found == nil {
		found = []file{{name: path, err: fmt.Errorf("the folder has no file that ends in one of %q", Extensions)}}
	}
	setCharts(found, path)
	if chart := chartOf(filepath.Join(path, "Chart.yaml"), ""); chart != "" { // the folder is a part of it
		for i := range found {
			found[i].chart = chart
		}
	}
	return found
}

// isSyntaxError reports whether an item is a document that is neither YAML nor JSON.
func isSyntaxError(item Item) bool {
	if item.Fault == nil {
		return false
	}
	_, ok := errors.AsType[*syntaxError](item.Fault)
	return ok
}

// isTemplate reports whether a document cannot be read because a program must fill in a template, as in a .krew.yaml.
func isTemplate(item Item) bool {
	return isSyntaxError(item) && strings.Contains(item.Fault.Error(), strictyaml.GotTemplate)
}

func isNoObject(item Item) bool { return item.Fault != nil && item.Fault.IsNoObject() }

// IsNoObject reports whether a document is something else than a Kubernetes object, and not a template of
// one.
func (e *Error) IsNoObject() bool {
	_, ok := errors.AsType[*NoObjectError](e)
	_, other := errors.AsType[*OtherFilesError](e)
	unrendered, isSource := errors.AsType[*UnrenderedError](e)
	return ok || other || isSource && !unrendered.Templates
}

// isFile says whether an entry of a folder is a file, or a link to one.
func isFile(tree files.Tree, name string, entry fs.DirEntry) bool {
	if entry.Type().IsRegular() {
		return true
	}
	info, err := tree.Stat(name)
	return entry.Type()&fs.ModeSymlink != 0 && (err != nil || info.Mode().IsRegular())
}
