package documents

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/admission"
)

// reads returns the documents that a reader adds from the files, and its errors.
func reads(files ...string) (added, errs []string) {
	r := &Reader{
		APIVersions: []string{"example.com/v1", "example.com/v2"}, Kinds: []string{"Policy", "Binding"},
		Add: func(file *admission.File, kind string, content []byte) []error {
			added = append(added, file.Name+" "+kind+" "+string(content))
			if strings.Contains(string(content), `"bad"`) {
				return []error{fmt.Errorf("first of %s", kind), fmt.Errorf("second of %s", kind)}
			}
			return nil
		},
	}
	var given []admission.File
	for i, content := range files {
		given = append(given, admission.File{Name: fmt.Sprintf("%d.yaml", i), Content: []byte(content)})
	}
	for _, err := range r.Read(given) {
		if _, ok := err.(*admission.FileError); !ok { //nolint:errorlint // the error itself, not one inside
			err = fmt.Errorf("no FileError: %w", err)
		}
		errs = append(errs, err.Error())
	}
	return added, errs
}

// in is the position of an error in the first file.
func in(text string) string {
	return (&admission.FileError{File: "0.yaml", Err: errors.New(text)}).Error()
}

func TestRead(t *testing.T) {
	f := func(files []string, want ...string) {
		t.Helper()
		if got, errs := reads(files...); !slices.Equal(got, want) || errs != nil {
			t.Errorf("%q:\ngot  %q, %q\nwant %q", files, got, errs, want)
		}
	}
	f(nil)
	f([]string{"", "# nothing\n---\n---\nnull\n"})
	f([]string{"apiVersion: example.com/v1\nkind: Policy\n---\napiVersion: example.com/v2\nkind: Binding\n",
		`{"kind":"Policy","apiVersion":"example.com/v1"}`},
		`0.yaml Policy {"apiVersion":"example.com/v1","kind":"Policy"}`, `0.yaml Binding {"apiVersion":"example.com/v2","kind":"Binding"}`,
		`1.yaml Policy {"apiVersion":"example.com/v1","kind":"Policy"}`)
	// Items need no type if the list has one, and a list can have several kinds.
	f([]string{"apiVersion: example.com/v1\nkind: PolicyList\nmetadata: {resourceVersion: '1'}\nitems: [{a: 1}, {apiVersion: " +
		"example.com/v2, kind: Binding}]\n"},
		`0.yaml Policy {"a":1}`, `0.yaml Binding {"apiVersion":"example.com/v2","kind":"Binding"}`)
	f([]string{"apiVersion: v1\nkind: List\nitems:\n- {apiVersion: example.com/v1, kind: Policy}\n- {apiVersion: example.com/v1, kind: " +
		"BindingList, items: [{a: 1}]}\n"},
		`0.yaml Policy {"apiVersion":"example.com/v1","kind":"Policy"}`, `0.yaml Binding {"a":1}`)
}

func TestReadErrors(t *testing.T) {
	f := func(files []string, added int, want ...string) {
		t.Helper()
		if got, errs := reads(files...); !slices.Equal(errs, want) || len(got) != added {
			t.Errorf("%q:\ngot  %q and %d documents\nwant %q and %d", files, errs, len(got), want, added)
		}
	}
	const version = `apiVersion: got "v1", want one of ["example.com/v1" "example.com/v2"]`
	f([]string{"apiVersion: v1\nkind: Policy\n"}, 0, in(version))
	f([]string{"kind: Policy\n"}, 0, in(strings.Replace(version, `"v1"`, `""`, 1)))
	f([]string{"apiVersion: v1\nkind: PolicyList\nitems: []\n"}, 0, in(version))
	f([]string{"apiVersion: example.com/v1\nkind: Pod\n"}, 0, in(`kind: got "Pod", want Policy, Binding or a list of them`))
	f([]string{"apiVersion: example.com/v1\nkind: List\n"}, 0, in(`kind: got "List", want Policy, Binding or a list of them`))
	// The names of members must be equal, as in kube-apiserver.
	f([]string{"apiVersion: example.com/v1\nKind: Policy\n"}, 0, in(`kind: got "", want Policy, Binding or a list of them`))
	f([]string{"- 1\n"}, 0, in("json: cannot unmarshal array into Go value of type v1.TypeMeta"))
	f([]string{"a: 1\na: 2\n"}, 0, in("yaml: unmarshal errors:\n  line 2: key \"a\" already set in map"))
	// The other documents are read nevertheless, and all errors are reported.
	f([]string{"a: [\n---\napiVersion: example.com/v1\nkind: Policy\nname: bad\n", "apiVersion: example.com/v1\nkind: Policy\n"}, 2,
		in("yaml: line 1: did not find expected node content"), in("first of Policy"), in("second of Policy"))
	f([]string{"apiVersion: v1\nkind: List\nitems: [{a: 1}, {apiVersion: example.com/v1, kind: Policy, name: bad}]\n"}, 1,
		in("items[0]: "+version), in("items[1]: first of Policy"), in("items[1]: second of Policy"))
	f([]string{"apiVersion: v1\nkind: List\nitems: []\nitmes: []\n"}, 0, in(`unknown field "itmes", did you mean items?`))
	f([]string{"apiVersion: v1\nkind: List\nitems: {}\n"}, 0,
		in("json: cannot unmarshal object into Go struct field .items of type []json.RawMessage"))
	f([]string{"--- x\n"}, 0, in("invalid Yaml document separator: x"))
}

type spec struct {
	N int `json:"n"`
}

func TestDecodeLenient(t *testing.T) {
	f := func(content, want, wantFault, wantErr string) {
		t.Helper()
		o, fault, err := DecodeLenient[spec]([]byte(content))
		got := fmt.Sprintf("%s %s %s %d", o.APIVersion, o.Kind, o.Name, o.Spec.N)
		if got != want || text(fault) != wantFault || text(err) != wantErr {
			t.Errorf("%s:\ngot  %q, %q, %q\nwant %q, %q, %q", content, got, text(fault), text(err), want, wantFault, wantErr)
		}
	}
	f(`{"apiVersion":"v1","kind":"K","metadata":{"name":"a"},"spec":{"n":1,"new":2},"status":{}}`, "v1 K a 1", "", "")
	f(`{"metadata":{"name":"a"}}`, "  a 0", "", "")
	f(`{"metadata":{"name":"a"},"spec":null}`, "  a 0", "", "")
	f(`{"metadata":{"name":"a"},"Spec":{"n":1},"spec":{"N":2}}`, "  a 0", "", "")
	f(`{"metadata":{"name":"a"},"spec":{"n":"1"}}`, "  a 0", "json: cannot unmarshal string into Go struct field spec.n of type int", "")
	f(`{"metadata":{"name":1},"spec":{"n":1}}`, "   0", "", "json: cannot unmarshal number into Go struct field "+
		"ObjectMeta.metadata.name of type string")
}

func TestDecode(t *testing.T) {
	f := func(content string, want ...string) {
		t.Helper()
		var got []string
		for _, err := range Decode([]byte(content), new(spec)) {
			got = append(got, err.Error())
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", content, got, want)
		}
	}
	f(`{"n":1}`)
	f(`{"n":1,"n":2,"m":3}`, `duplicate field "n"`, `unknown field "m", did you mean n?`)
	f(`{"N":1}`, `unknown field "N", did you mean n?`)
	f(`{"n":"a"}`, "json: cannot unmarshal string into Go struct field spec.n of type int")
	f(`[`, "unexpected end of JSON input")
}

// text returns the text of an error, "" for none.
func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
