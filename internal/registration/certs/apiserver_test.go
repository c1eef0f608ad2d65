package certs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/merge"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// An inMemory is a network of pipes, because synctest knows when goroutines wait for pipes,
// but not when they wait for sockets.
type inMemory struct {
	mu        sync.Mutex
	listeners map[string]*listener // by address
}

func (n *inMemory) listen(address string) *listener {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := &listener{address: address, conns: make(chan net.Conn), closed: make(chan struct{})}
	n.listeners[address] = l
	return l
}

func (n *inMemory) dial(ctx context.Context, _, address string) (net.Conn, error) {
	n.mu.Lock()
	l := n.listeners[address]
	n.mu.Unlock()
	if l == nil {
		return nil, fmt.Errorf("dial %s: connection refused", address)
	}
	ours, theirs := net.Pipe()
	select {
	case l.conns <- theirs:
		return ours, nil
	case <-l.closed:
		return nil, fmt.Errorf("dial %s: connection refused", address)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type listener struct {
	address string
	conns   chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error    { l.once.Do(func() { close(l.closed) }); return nil }
func (l *listener) Addr() net.Addr  { return l }
func (l *listener) Network() string { return "pipe" }
func (l *listener) String() string  { return l.address }

// An apiServer stores the kinds of testKinds as kube-apiserver does: with resource versions, watches and its own library for
// server-side apply, without defaults.
type apiServer struct {
	t       testing.TB
	network *inMemory
	server  *http.Server

	mu      sync.Mutex
	changed chan struct{} // closed when an object changes
	version int
	objects map[string]*stored // by resource and name
	writes  map[string]int     // successful writes, by verb and resource
	bundles []snapshot         // of all webhook configurations, oldest first

	// refuse is called first; its error is the answer.
	refuse func(verb, resource string) error
}

// stored is an object with the owners of its fields.
type stored struct {
	unstructured.Unstructured
	fields fieldpath.ManagedFields
}

var testKinds = map[string]schema.GroupVersionKind{
	"secrets":           {Version: "v1", Kind: "Secret"},
	"services":          {Version: "v1", Kind: "Service"},
	"events":            {Version: "v1", Kind: "Event"},
	"deployments":       {Group: "apps", Version: "v1", Kind: "Deployment"},
	mutating.resource:   {Group: "admissionregistration.k8s.io", Version: "v1", Kind: mutating.kind},
	validating.resource: {Group: "admissionregistration.k8s.io", Version: "v1", Kind: validating.kind},
	"clusterroles":      {Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"},
}

// fieldTypes is the part of kube-apiserver's published schema that matters here.
var fieldTypes = func() typed.ParseableType {
	parser, err := typed.NewParser(`types:
- name: object
  map:
    fields:
    - name: metadata
      type: {namedType: metadata}
    - name: webhooks
      type:
        list: {elementType: {namedType: webhook}, elementRelationship: associative, keys: [name]}
    elementType: {namedType: any}
- name: metadata
  map:
    fields:
    - name: ownerReferences
      type:
        list: {elementType: {namedType: any}, elementRelationship: associative, keys: [uid]}
    elementType: {namedType: any}
- name: webhook
  map:
    fields:
    - name: name
      type: {scalar: string}
    - name: clientConfig
      type:
        map:
          fields:
          - name: caBundle
            type: {scalar: string}
          - name: url
            type: {scalar: string}
          - name: service
            type: {namedType: any}
    elementType: {namedType: any}
- name: any
  scalar: untyped
  list: {elementType: {namedType: any}, elementRelationship: atomic}
  map: {elementType: {namedType: any}, elementRelationship: separable}
`)
	if err != nil {
		panic(err)
	}
	return parser.Type("object")
}()

// anyVersion converts between the versions of a kind, of which there is one
// (merge.Converter).
type anyVersion struct{}

func (anyVersion) Convert(object *typed.TypedValue, _ fieldpath.APIVersion) (*typed.TypedValue, error) {
	return object, nil
}

func (anyVersion) IsMissingVersionError(error) bool { return false }

var updater = (&merge.UpdaterBuilder{Converter: anyVersion{}}).BuildUpdater()

// ownable returns the part of an object whose fields have owners.
func ownable(object *unstructured.Unstructured) (*typed.TypedValue, error) {
	object = object.DeepCopy()
	for _, field := range []string{"name", "namespace", "uid", "resourceVersion", "creationTimestamp", "managedFields"} {
		unstructured.RemoveNestedField(object.Object, "metadata", field)
	}
	if metadata, _ := object.Object["metadata"].(map[string]any); len(metadata) == 0 {
		delete(object.Object, "metadata")
	}
	delete(object.Object, "apiVersion")
	delete(object.Object, "kind")
	return fieldTypes.FromUnstructured(object.Object)
}

func newAPIServer(t testing.TB, network *inMemory) *apiServer {
	a := &apiServer{
		t: t, network: network, changed: make(chan struct{}), version: 100,
		objects: make(map[string]*stored), writes: make(map[string]int),
	}
	a.server = &http.Server{Handler: a}
	ln := network.listen("api:80")
	go func() { _ = a.server.Serve(ln) }()
	return a
}

// config returns the client configuration for the server.
func (a *apiServer) config() *rest.Config {
	return &rest.Config{Host: "http://api", QPS: -1, Transport: &http.Transport{DialContext: a.network.dial, DisableKeepAlives: true}}
}

// refuseIf sets the function that refuses requests, nil for none.
func (a *apiServer) refuseIf(refuse func(verb, resource string) error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refuse = refuse
}

// away makes every request fail as a proxy in front of the server does, and ends watches.
func (a *apiServer) away() {
	a.refuseIf(func(string, string) error { return errors.New("no upstream") })
	a.mu.Lock()
	defer a.mu.Unlock()
	a.publish()
}

// count returns the number of successful writes.
func (a *apiServer) count(verb, resource string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.writes[verb+" "+resource]
}

// ServeHTTP implements http.Handler.
func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(r.URL.Path, "/")
	at := slices.IndexFunc(parts, func(p string) bool { return testKinds[p].Kind != "" })
	resource, name := parts[at], ""
	if at+1 < len(parts) {
		name = parts[at+1]
	}
	verb := map[string]string{"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch"}[r.Method]
	if r.URL.Query().Get("watch") == "true" {
		verb = "watch"
	}
	a.mu.Lock()
	refuse := a.refuse
	a.mu.Unlock()
	if refuse != nil {
		if err := refuse(verb, resource); err != nil {
			a.answer(w, nil, err)
			return
		}
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	switch verb {
	case "watch":
		a.watch(w, r, resource, strings.TrimPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name="))
	case "get":
		object, err := a.get(resource, name)
		a.answer(w, object, err)
	case "patch":
		if r.Header.Get("Content-Type") != "application/apply-patch+yaml" {
			a.t.Errorf("got a patch of type %s", r.Header.Get("Content-Type"))
		}
		object, err := a.apply(resource, name, body, r.URL.Query().Get("fieldManager"), r.URL.Query().Get("force") == "true")
		a.answer(w, object, err)
	default:
		object, err := a.write(verb, resource, body, "someone")
		a.answer(w, object, err)
	}
}

func (a *apiServer) answer(w http.ResponseWriter, object any, err error) {
	code := http.StatusOK
	if err != nil {
		status, ok := errors.AsType[*apierrors.StatusError](err)
		if !ok { // not an API server's answer
			http.Error(w, err.Error(), http.StatusNotFound)
			return
		}
		status.ErrStatus.APIVersion, status.ErrStatus.Kind = "v1", "Status"
		object, code = status.ErrStatus, int(status.ErrStatus.Code)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if s, ok := object.(*stored); ok {
		object = s.Object
	}
	_ = json.NewEncoder(w).Encode(object)
}

// watch sends all objects and then changes, until the client disconnects or the server is
// away.
func (a *apiServer) watch(w http.ResponseWriter, r *http.Request, resource, name string) {
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	for last := ""; ; {
		a.mu.Lock()
		object, changed, refuse := a.objects[resource+"/"+name], a.changed, a.refuse
		a.mu.Unlock()
		if refuse != nil && refuse("watch", resource) != nil {
			return
		}
		now := ""
		if object != nil {
			now = object.GetResourceVersion()
		}
		if now != last {
			fmt.Fprintf(w, "{\"type\":\"MODIFIED\",\"object\":{\"metadata\":{\"resourceVersion\":%q}}}\n", now)
			w.(http.Flusher).Flush()
			last = now
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

func (a *apiServer) get(resource, name string) (*stored, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	object := a.objects[resource+"/"+name]
	if object == nil {
		return nil, apierrors.NewNotFound(groupResource(resource), name)
	}
	return object, nil
}

func groupResource(resource string) schema.GroupResource {
	return schema.GroupResource{Group: testKinds[resource].Group, Resource: resource}
}

// write creates or updates an object.
func (a *apiServer) write(verb, resource string, body []byte, manager string) (*stored, error) {
	object := new(unstructured.Unstructured)
	if err := json.Unmarshal(body, &object.Object); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	name := object.GetName()
	live := a.objects[resource+"/"+name]
	switch {
	case verb == "create" && live != nil:
		return nil, apierrors.NewAlreadyExists(groupResource(resource), name)
	case verb == "create":
		live = new(stored)
	case live == nil:
		return nil, apierrors.NewNotFound(groupResource(resource), name)
	case object.GetResourceVersion() != "" && object.GetResourceVersion() != live.GetResourceVersion():
		return nil, apierrors.NewConflict(groupResource(resource), name, errors.New("it was changed"))
	}
	was, err := ownable(&live.Unstructured)
	if err != nil {
		return nil, err
	}
	is, err := ownable(object)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	_, fields, err := updater.Update(was, is, "v1", live.fields.Copy(), manager)
	if err != nil {
		return nil, err
	}
	return a.store(verb, resource, &stored{*object, fields})
}

func (a *apiServer) apply(resource, name string, body []byte, manager string, force bool) (*stored, error) {
	object := new(unstructured.Unstructured)
	if err := json.Unmarshal(body, &object.Object); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if object.GetManagedFields() != nil {
		return nil, apierrors.NewBadRequest("metadata.managedFields must be nil")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	live, verb := a.objects[resource+"/"+name], "patch"
	if live == nil {
		live, verb = new(stored), "create"
	}
	if v := object.GetResourceVersion(); v != "" && v != live.GetResourceVersion() {
		return nil, apierrors.NewConflict(groupResource(resource), name, errors.New("it was changed"))
	}
	was, err := ownable(&live.Unstructured)
	if err != nil {
		return nil, err
	}
	is, err := ownable(object)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	merged, fields, err := updater.Apply(was, is, "v1", live.fields.Copy(), manager, force)
	if conflicts, ok := errors.AsType[merge.Conflicts](err); ok {
		return nil, apierrors.NewApplyConflict(nil, conflicts.Error())
	}
	if err != nil {
		return nil, err
	}
	if merged == nil { // only owners changed
		merged = was
	}
	content, _ := merged.AsValue().Unstructured().(map[string]any)
	result := &stored{unstructured.Unstructured{Object: content}, fields}
	result.SetName(name)
	return a.store(verb, resource, result)
}

// store checks and stores an object. Without a change, the version stays the same.
func (a *apiServer) store(verb, resource string, object *stored) (*stored, error) {
	gvk, name := testKinds[resource], object.GetName()
	object.SetGroupVersionKind(gvk)
	for _, w := range asWebhooks(a.t, object) {
		if w.ClientConfig.URL == nil && w.ClientConfig.Service == nil || w.SideEffects == nil {
			return nil, apierrors.NewInvalid(gvk.GroupKind(), name, nil)
		}
	}
	a.version++
	object.SetUID(types.UID("uid-" + strconv.Itoa(a.version)))
	object.SetCreationTimestamp(metav1.Now())
	object.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "m"}})
	object.SetResourceVersion(strconv.Itoa(a.version))
	if live := a.objects[resource+"/"+name]; live != nil {
		object.SetUID(live.GetUID())
		object.SetCreationTimestamp(live.GetCreationTimestamp())
		object.SetResourceVersion(live.GetResourceVersion())
		if reflect.DeepEqual(live.Object, object.Object) {
			a.objects[resource+"/"+name] = object
			return object, nil
		}
		object.SetResourceVersion(strconv.Itoa(a.version))
	}
	a.writes[verb+" "+resource]++
	a.objects[resource+"/"+name] = object
	a.publish()
	return object, nil
}

// A snapshot has the registered bundles and paths since a time, by webhook.
type snapshot struct {
	at      time.Time
	bundles map[string][]byte
	paths   map[string]string
}

// publish notifies the watches.
func (a *apiServer) publish() {
	now := snapshot{time.Now(), make(map[string][]byte), make(map[string]string)}
	for key, object := range a.objects {
		for _, w := range asWebhooks(a.t, object) {
			now.bundles[key+"/"+w.Name] = w.ClientConfig.CABundle
			if w.ClientConfig.Service != nil && w.ClientConfig.Service.Path != nil {
				now.paths[key+"/"+w.Name] = *w.ClientConfig.Service.Path
			}
		}
	}
	a.bundles = append(a.bundles, now)
	close(a.changed)
	a.changed = make(chan struct{})
}

func (a *apiServer) remove(resource, name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.objects, resource+"/"+name)
	a.publish()
}

// webhook has the fields of both kinds of webhooks.
type webhook struct {
	Name         string
	ClientConfig admissionregistrationv1.WebhookClientConfig
	SideEffects  *admissionregistrationv1.SideEffectClass
	Rules        []admissionregistrationv1.RuleWithOperations
}

func asWebhooks(t testing.TB, object *stored) []webhook {
	var configuration struct{ Webhooks []webhook }
	decode(t, object, &configuration)
	return configuration.Webhooks
}

func decode(t testing.TB, object *stored, into any) {
	t.Helper()
	text, err := json.Marshal(object.Object)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		t.Error(err)
	}
}

// secret returns the data of the Secret, nil if there is none.
func (a *apiServer) secret() map[string][]byte {
	object, err := a.get("secrets", "certs")
	if err != nil {
		return nil
	}
	var secret corev1.Secret
	decode(a.t, object, &secret)
	return secret.Data
}

// putSecret changes the Secret as a user does.
func (a *apiServer) putSecret(data map[string][]byte) {
	a.t.Helper()
	text, err := json.Marshal(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "fastadmit", Name: "certs"}, Data: data})
	if err != nil {
		a.t.Fatal(err)
	}
	verb := "update"
	if a.secret() == nil {
		verb = "create"
	}
	if _, err := a.write(verb, "secrets", text, "human"); err != nil {
		a.t.Fatal(err)
	}
}

// webhooks returns the webhooks of the configuration, by name.
func (a *apiServer) webhooks(resource string) map[string]webhook {
	object, err := a.get(resource, "fastadmit.io")
	if err != nil {
		return nil
	}
	all := make(map[string]webhook)
	for _, w := range asWebhooks(a.t, object) {
		all[w.Name] = w
	}
	return all
}
