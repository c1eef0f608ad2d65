package codec_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionv1beta1 "k8s.io/api/admission/v1beta1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
	"github.com/fastadmit/fastadmit/internal/seed"
)

// decodeFunc is json.Unmarshal or a function with the same result.
type decodeFunc func(text []byte, v any) error

// oracle decodes body with decode into the types of k8s.io/api, v1beta1 ones
// restated as v1.
func oracle(body []byte, decode decodeFunc) (apiVersion string, request *admissionv1.AdmissionRequest, err error) {
	var v1 admissionv1.AdmissionReview
	if err := decode(body, &v1); err != nil {
		return "", nil, err
	}
	if v1.APIVersion != codec.APIVersionV1beta1 || v1.Request == nil {
		return v1.APIVersion, v1.Request, nil
	}
	var beta admissionv1beta1.AdmissionReview
	if err := decode(body, &beta); err != nil {
		return "", nil, err
	}
	r := beta.Request
	return beta.APIVersion, &admissionv1.AdmissionRequest{
		UID: r.UID, Kind: r.Kind, Resource: r.Resource, SubResource: r.SubResource, RequestKind: r.RequestKind,
		RequestResource: r.RequestResource, RequestSubResource: r.RequestSubResource, Name: r.Name,
		Namespace: r.Namespace, Operation: admissionv1.Operation(r.Operation), UserInfo: r.UserInfo,
		Object: r.Object, OldObject: r.OldObject, DryRun: r.DryRun, Options: r.Options,
	}, nil
}

// requestOf reads every field through the Review. It treats empty fields as
// absent ones.
func requestOf(r *codec.Review) *admissionv1.AdmissionRequest {
	kind, resource := metav1.GroupVersionKind(r.RequestKind()), metav1.GroupVersionResource(r.RequestResource())
	dryRun := r.DryRun()
	return &admissionv1.AdmissionRequest{
		UID: types.UID(r.UID()), Kind: metav1.GroupVersionKind(r.Kind()),
		Resource: metav1.GroupVersionResource(r.Resource()), SubResource: r.SubResource(),
		RequestKind: &kind, RequestResource: &resource, RequestSubResource: r.RequestSubResource(),
		Name: r.Name(), Namespace: r.Namespace(), Operation: admissionv1.Operation(r.Operation()),
		UserInfo: userInfoOf(r.UserInfo()), DryRun: &dryRun,
		Object: raw(&r.Object), OldObject: raw(&r.OldObject), Options: raw(&r.Options),
	}
}

func raw(o *codec.Object) runtime.RawExtension {
	return runtime.RawExtension{Raw: []byte(o.Root().JSON())}
}

func userInfoOf(v codec.Value) authenticationv1.UserInfo {
	info := authenticationv1.UserInfo{
		Username: v.Get("username").String(),
		UID:      v.Get("uid").String(),
		Groups:   stringsOf(v.Get("groups")),
	}
	for name, values := range v.Get("extra").Members() {
		if info.Extra == nil {
			info.Extra = make(map[string]authenticationv1.ExtraValue)
		}
		info.Extra[name] = stringsOf(values)
	}
	return info
}

func stringsOf(v codec.Value) (all []string) {
	for _, element := range v.Elements() {
		all = append(all, element.String())
	}
	return all
}

// plainRequest makes empty fields absent, as requestOf does.
func plainRequest(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionRequest {
	plain := *r
	plain.RequestKind, plain.RequestResource, plain.DryRun = orZero(r.RequestKind), orZero(r.RequestResource), orZero(r.DryRun)
	plain.Object.Raw, plain.OldObject.Raw = slices.Concat(r.Object.Raw), slices.Concat(r.OldObject.Raw)
	plain.Options.Raw = slices.Concat(r.Options.Raw)
	if len(plain.UserInfo.Groups) == 0 {
		plain.UserInfo.Groups = nil
	}
	if len(plain.UserInfo.Extra) == 0 {
		plain.UserInfo.Extra = nil
	}
	for name, values := range plain.UserInfo.Extra {
		if len(values) == 0 {
			plain.UserInfo.Extra[name] = nil
		}
	}
	return &plain
}

func orZero[T any](p *T) *T {
	if p == nil {
		p = new(T)
	}
	return p
}

// checkAgainst fails if a field of r differs from the oracle's.
func checkAgainst(t testing.TB, r *codec.Review, apiVersion string, want *admissionv1.AdmissionRequest) {
	t.Helper()
	if r.APIVersion() != apiVersion {
		t.Errorf("APIVersion: got %q, want %q", r.APIVersion(), apiVersion)
	}
	got, plain := requestOf(r), plainRequest(want)
	for i := range reflect.TypeFor[admissionv1.AdmissionRequest]().NumField() {
		field := reflect.TypeFor[admissionv1.AdmissionRequest]().Field(i)
		got, want := reflect.ValueOf(got).Elem().Field(i).Interface(), reflect.ValueOf(plain).Elem().Field(i).Interface()
		if raw, ok := want.(runtime.RawExtension); ok && len(raw.Raw) == 0 && len(got.(runtime.RawExtension).Raw) == 0 {
			continue // nil or empty
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %.300v, want %.300v", field.Name, got, want)
		}
	}
	if r.Username() != want.UserInfo.Username {
		t.Errorf("Username: got %q, want %q", r.Username(), want.UserInfo.Username)
	}
	if err := r.Err(); err != nil {
		t.Errorf("Err after reading every field: %v", err)
	}
}

// checkBody decodes body both ways and compares every field.
func checkBody(t *testing.T, body []byte) {
	t.Helper()
	apiVersion, want, err := oracle(body, json.Unmarshal)
	if err != nil {
		t.Fatalf("encoding/json: %v", err)
	}
	r := codec.Acquire()
	defer r.Release()
	if err := r.Decode(body); err != nil {
		t.Fatalf("Decode: %v", err)
	}
	checkAgainst(t, r, apiVersion, want)
}

func TestDecodeIsWhatEncodingJSONDecodes(t *testing.T) {
	for _, name := range corpus.Names() {
		t.Run(name, func(t *testing.T) { checkBody(t, corpus.MustRead(name)) })
	}
}

// TestDecodeAnySpelling writes every recording in other ways with the same
// meaning, and with unknown fields in the envelope.
func TestDecodeAnySpelling(t *testing.T) {
	rng := seed.Rand(t)
	styles := map[string]style{
		"shuffled": {rng: rng, shuffled: true},
		"spaced":   {rng: rng, spaced: true},
		"escaped":  {rng: rng, escaped: true},
		"all":      {rng: rng, shuffled: true, spaced: true, escaped: true},
	}
	if testing.Short() {
		styles = map[string]style{"all": styles["all"]}
	}
	f := func(name, how string, s style) {
		t.Run(name+"/"+how, func(t *testing.T) {
			body := corpus.MustRead(name)
			doc := parse(t, body)
			addUnknown(s, doc)
			addUnknown(s, doc.member("request"))
			addUnknown(s, doc.member("request").member("kind"))
			addUnknown(s, doc.member("request").member("requestResource"))
			addUnknown(s, doc.member("request").member("userInfo"))
			spelled := s.append(nil, doc)
			checkBody(t, spelled)
			checkMeaning(t, body, spelled)
		})
	}
	for _, name := range corpus.Names() {
		for how, s := range styles {
			f(name, how, s)
		}
	}
}

// addUnknown inserts members that no type has. Their values mislead a reader
// that does not skip them as a whole.
func addUnknown(s style, doc *document) {
	unknown := []string{"", "requests", "ui", "kind\x00", "object ", "\"", "оbject" /* Cyrillic o */}
	value := &document{open: '{', names: []string{"uid", "request"}, items: []*document{
		{scalar: "},{\"uid\":\\"}, {open: '[', items: []*document{{scalar: nil}, {open: '{'}}},
	}}
	for _, name := range unknown {
		at := s.rng.IntN(len(doc.names) + 1)
		doc.names = slices.Insert(doc.names, at, name)
		doc.items = slices.Insert(doc.items, at, value)
	}
}

// checkMeaning fails if two bodies do not have equal fields.
func checkMeaning(t *testing.T, body, spelled []byte) {
	t.Helper()
	a, b := codec.Acquire(), codec.Acquire()
	defer a.Release()
	defer b.Release()
	if err := a.Decode(body); err != nil {
		t.Fatal(err)
	}
	if err := b.Decode(spelled); err != nil {
		t.Fatal(err)
	}
	want, got := requestOf(a), requestOf(b)
	for _, r := range []*admissionv1.AdmissionRequest{want, got} {
		for _, part := range []*runtime.RawExtension{&r.Object, &r.OldObject, &r.Options} {
			if len(part.Raw) == 0 {
				part.Raw = []byte("null")
			}
		}
	}
	if !same(t, got.Object.Raw, want.Object.Raw) || !same(t, got.OldObject.Raw, want.OldObject.Raw) ||
		!same(t, got.Options.Raw, want.Options.Raw) {
		t.Error("the objects differ")
	}
	for _, r := range []*admissionv1.AdmissionRequest{want, got} {
		r.Object, r.OldObject, r.Options = runtime.RawExtension{}, runtime.RawExtension{}, runtime.RawExtension{}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
