package cluster

import (
	"bytes"
	"fmt"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fastadmit/fastadmit/internal/testserver"
)

// configMap is a namespaced kind, defined like those of other packages.
var configMap = Define(Definition{
	Version: "v1", Resource: "configmaps", Kind: "ConfigMap", Namespaced: true,
}, Type[*corev1.ConfigMap]{
	List: &corev1.ConfigMapList{},
	Keep: func(c *corev1.ConfigMap) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: trimMeta(&c.ObjectMeta)}
	},
})

// An apiServer answers as kube-apiserver does for namespaces and ConfigMaps: get, list,
// watch, bookmarks, watch lists, expired versions.
type apiServer struct {
	t      *testing.T
	addr   string
	server *testserver.Server
	codecs serializer.CodecFactory

	onlyJSON, onlyList bool // set before the first request

	mu       sync.Mutex
	changed  chan struct{} // closed when anything below changes
	version  int
	oldest   int // events after this version are available
	events   []change
	objects  map[string]runtime.Object // by resource and name
	requests []*http.Request

	// answer is called first; it returns true if it has answered.
	answer func(w http.ResponseWriter, r *http.Request) bool
}

// A change is an event of a watch.
type change struct {
	version  int
	resource string // empty for a bookmark of all
	event    watch.Event
}

var testKinds = map[string]*Kind{"namespaces": Namespaces.Kind, "configmaps": configMap.Kind}

func newAPIServer(t *testing.T) *apiServer {
	a := &apiServer{
		t:       t,
		addr:    testserver.FreeAddress(t),
		codecs:  serializer.NewCodecFactory(newScheme(slices.Collect(maps.Values(testKinds))...)),
		changed: make(chan struct{}),
		version: 10,
		oldest:  10,
		objects: make(map[string]runtime.Object),
	}
	a.start()
	return a
}

// start listens, each time at the same address.
func (a *apiServer) start() {
	ln, err := net.Listen("tcp", a.addr)
	if err != nil {
		a.t.Fatal(err)
	}
	a.server = testserver.Unstarted(a.t, a)
	a.server.Listener.Close()
	a.server.Listener = ln
	a.server.Start()
}

// stop closes all connections and refuses new ones.
func (a *apiServer) stop() { a.server.Close() }

// cut closes all connections.
func (a *apiServer) cut() { a.server.CloseClientConnections() }

// kubeconfig writes a kubeconfig file for the server and returns its name.
func (a *apiServer) kubeconfig() string {
	return writeKubeconfig(a.t, &clientcmdapi.Cluster{Server: "http://" + a.addr})
}

func writeKubeconfig(t *testing.T, to *clientcmdapi.Cluster) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = to
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: "secret"}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// intercept sets the function that may answer first, nil for none.
func (a *apiServer) intercept(answer func(w http.ResponseWriter, r *http.Request) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answer = answer
}

// put creates or changes an object.
func (a *apiServer) put(object metav1.Object) {
	a.change(object, func(key string, o runtime.Object) watch.EventType {
		_, existed := a.objects[key]
		a.objects[key] = o
		if existed {
			return watch.Modified
		}
		return watch.Added
	})
}

// remove deletes an object.
func (a *apiServer) remove(object metav1.Object) {
	a.change(object, func(key string, _ runtime.Object) watch.EventType {
		delete(a.objects, key)
		return watch.Deleted
	})
}

func (a *apiServer) change(object metav1.Object, do func(key string, o runtime.Object) watch.EventType) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.version++
	object.SetResourceVersion(strconv.Itoa(a.version))
	resource := "namespaces"
	if object.GetNamespace() != "" {
		resource = "configmaps"
	}
	o := object.(runtime.Object).DeepCopyObject()
	kind := do(resource+"/"+object.GetNamespace()+"/"+object.GetName(), o)
	a.publish(change{a.version, resource, watch.Event{Type: kind, Object: o}})
}

// bookmark sends a bookmark with a new version to all watches.
func (a *apiServer) bookmark() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.version++
	version := strconv.Itoa(a.version)
	a.publish(change{version: a.version, event: watch.Event{Type: watch.Bookmark}})
	return version
}

func (a *apiServer) publish(c change) {
	a.events = append(a.events, c)
	close(a.changed)
	a.changed = make(chan struct{})
}

// forget deletes a namespace and expires all earlier versions, without an event of the
// watches.
func (a *apiServer) forget(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.objects, "namespaces//"+name)
	a.version++
	a.oldest, a.events = a.version, nil
}

// count returns how many requests match.
func (a *apiServer) count(match func(r *http.Request) bool) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.requests {
		if match(r) {
			n++
		}
	}
	return n
}

func isWatch(r *http.Request) bool { return r.URL.Query().Get("watch") == "true" }

func isGet(r *http.Request) bool { return strings.Count(r.URL.Path, "/") > 3 }

// ServeHTTP implements http.Handler.
func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	a.requests = append(a.requests, r)
	answer := a.answer
	a.mu.Unlock()
	if answer != nil && answer(w, r) {
		return
	}
	if r.TLS != nil && r.Header.Get("Authorization") != "Bearer secret" { // clients send it only over TLS
		a.fail(w, r, apierrors.NewUnauthorized("who are you?"))
		return
	}
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/api/v1/"), "/")
	namespace := ""
	if len(parts) > 2 {
		namespace, parts = parts[1], parts[2:]
	}
	kind := testKinds[parts[0]]
	switch {
	case kind == nil:
		a.fail(w, r, apierrors.NewNotFound(schema.GroupResource{Resource: parts[0]}, ""))
	case isWatch(r):
		a.watch(w, r, kind)
	case len(parts) == 2:
		a.mu.Lock()
		object := a.objects[parts[0]+"/"+namespace+"/"+parts[1]]
		a.mu.Unlock()
		if object == nil {
			a.fail(w, r, apierrors.NewNotFound(kind.Resource(), parts[1]))
			return
		}
		a.write(w, r, http.StatusOK, object)
	default:
		objects, version := a.all(kind, namespace)
		list := kind.list.DeepCopyObject()
		if err := meta.SetList(list, objects); err != nil {
			a.t.Error(err)
		}
		list.(metav1.ListInterface).SetResourceVersion(strconv.Itoa(version))
		a.write(w, r, http.StatusOK, list)
	}
}

// all returns the objects of a kind in a namespace, or all of them if it is empty, and their
// version.
func (a *apiServer) all(kind *Kind, namespace string) (objects []runtime.Object, version int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(a.objects)) {
		if strings.HasPrefix(key, kind.resource+"/") && (namespace == "" || strings.HasPrefix(key, kind.resource+"/"+namespace+"/")) {
			objects = append(objects, a.objects[key])
		}
	}
	return objects, a.version
}

// media returns the encoding that the request accepts.
func (a *apiServer) media(r *http.Request) runtime.SerializerInfo {
	want := runtime.ContentTypeJSON
	if strings.HasPrefix(r.Header.Get("Accept"), runtime.ContentTypeProtobuf) && !a.onlyJSON {
		want = runtime.ContentTypeProtobuf
	}
	info, _ := runtime.SerializerInfoForMediaType(a.codecs.SupportedMediaTypes(), want)
	return info
}

func (a *apiServer) encoder(s runtime.Encoder) runtime.Encoder {
	return a.codecs.WithoutConversion().EncoderForVersion(s, corev1.SchemeGroupVersion)
}

func (a *apiServer) write(w http.ResponseWriter, r *http.Request, code int, object runtime.Object) {
	media := a.media(r)
	var body bytes.Buffer
	if err := a.encoder(media.Serializer).Encode(object.DeepCopyObject(), &body); err != nil {
		a.t.Error(err)
	}
	w.Header().Set("Content-Type", media.MediaType)
	w.WriteHeader(code)
	w.Write(body.Bytes())
}

func (a *apiServer) fail(w http.ResponseWriter, r *http.Request, err *apierrors.StatusError) {
	status := err.Status()
	a.write(w, r, int(status.Code), &status)
}

// watch serves a watch until the client disconnects.
func (a *apiServer) watch(w http.ResponseWriter, r *http.Request, kind *Kind) {
	initial := r.URL.Query().Get("sendInitialEvents") == "true"
	if initial && a.onlyList {
		a.fail(w, r, apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil))
		return
	}
	media := a.media(r)
	w.Header().Set("Content-Type", media.MediaType+";stream=watch")
	w.WriteHeader(http.StatusOK)
	events := streaming.NewEncoder(media.StreamSerializer.NewFrameWriter(w), a.encoder(media.StreamSerializer.Serializer))
	send := func(event watch.Event) bool {
		var object bytes.Buffer
		if err := a.encoder(media.Serializer).Encode(event.Object.DeepCopyObject(), &object); err != nil {
			a.t.Error(err)
		}
		err := events.Encode(&metav1.WatchEvent{Type: string(event.Type), Object: runtime.RawExtension{Raw: object.Bytes()}})
		w.(http.Flusher).Flush()
		return err == nil
	}
	bookmark := func(version int, annotations map[string]string) {
		object := kind.object.DeepCopyObject()
		object.(metav1.Object).SetResourceVersion(strconv.Itoa(version))
		object.(metav1.Object).SetAnnotations(annotations)
		send(watch.Event{Type: watch.Bookmark, Object: object})
	}
	w.(http.Flusher).Flush()
	from, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	if initial {
		var objects []runtime.Object
		objects, from = a.all(kind, "")
		for _, object := range objects {
			send(watch.Event{Type: watch.Added, Object: object})
		}
		bookmark(from, map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	for {
		a.mu.Lock()
		events, changed, expired := slices.Clone(a.events), a.changed, from < a.oldest
		a.mu.Unlock()
		if expired {
			status := apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d", from)).Status()
			send(watch.Event{Type: watch.Error, Object: &status})
			return
		}
		for _, c := range events {
			if c.version <= from || c.resource != "" && c.resource != kind.resource {
				continue
			}
			if from = c.version; c.resource == "" {
				bookmark(from, nil)
			} else if !send(c.event) {
				return
			}
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

// fastTiming has the intervals for a server on the same machine.
var fastTiming = timing{
	quiet:   time.Minute,
	live:    time.Minute,
	absent:  time.Millisecond,
	backoff: wait.Backoff{Duration: time.Millisecond, Factor: 2, Steps: 5, Cap: 20 * time.Millisecond},
}

// followed are the needs of the tests.
func followed() []Need {
	return []Need{Namespaces.Watched(), configMap.Watched(), Namespaces.Watched()}
}

// namespacesIn returns the namespaces of a State.
func namespacesIn(s *State) *Objects[*corev1.Namespace] {
	return Namespaces.In(s.View(followed()...))
}

// newState returns a State of namespaces and ConfigMaps in the server, before Follow.
func (a *apiServer) newState(o Options) *State {
	a.t.Helper()
	o.Kubeconfig = a.kubeconfig()
	o.Kinds = []*Kind{configMap.Kind}
	s, err := New(o)
	if err != nil {
		a.t.Fatal(err)
	}
	for _, kind := range testKinds {
		if err := s.Follow(a.t.Context(), kind.Called("get")); err != nil {
			a.t.Fatal(err)
		}
		s.find(kind).timing = fastTiming
	}
	return s
}

// eventually waits until holds returns true. With the race detector on a busy machine, a list of 36 MB took
// more than a minute.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// namespace returns a namespace as kube-apiserver stores it.
func namespace(name string, labels ...string) *corev1.Namespace {
	n := &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: "1-" + "2", Generation: 3, CreationTimestamp: metav1.Now(),
			Labels:          map[string]string{corev1.LabelMetadataName: name},
			Annotations:     map[string]string{"kept": "yes", corev1.LastAppliedConfigAnnotation: "{}"},
			Finalizers:      []string{"f"},
			ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: "m", FieldsV1: metav1.NewFieldsV1("{}")}},
			OwnerReferences: []metav1.OwnerReference{{Name: "owner"}},
		},
		Spec:   corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{corev1.FinalizerKubernetes}},
		Status: corev1.NamespaceStatus{Phase: corev1.NamespaceActive, Conditions: []corev1.NamespaceCondition{{Message: "m"}}},
	}
	for i := 0; i < len(labels); i += 2 {
		n.Labels[labels[i]] = labels[i+1]
	}
	return n
}
