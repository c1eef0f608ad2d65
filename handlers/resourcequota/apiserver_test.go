package resourcequota

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/internal/testserver"
)

// An apiServer serves quotas. It accepts a status only if the writer has seen the current
// version. Its watches send no events, so without requests replicas know only the initial
// quotas.
type apiServer struct {
	*testserver.Server
	t      testing.TB
	decode runtime.Decoder

	mu      sync.Mutex
	version int
	quotas  map[string]*corev1.ResourceQuota
	puts    int
	asked   int // requests about one namespace
	// before, if not nil, is called before a write. It returns the error that the write
	// gets, nil to do the write.
	before func(q *corev1.ResourceQuota) *apierrors.StatusError
	// lost, if not nil, is called after a write, and reports whether its answer is lost.
	lost  func() bool
	reads *apierrors.StatusError // the error that a read of a quota gets, nil for none
	over  []string               // quotas that were written with more used than their limit
}

func newAPIServer(t testing.TB, quotas ...*corev1.ResourceQuota) *apiServer {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.ResourceQuota{})
	a := &apiServer{t: t, decode: serializer.NewCodecFactory(scheme).UniversalDeserializer(),
		quotas: make(map[string]*corev1.ResourceQuota)}
	for _, q := range quotas {
		a.put(q)
	}
	a.Server = testserver.Start(t, a)
	return a
}

// put stores a quota as a new version.
func (a *apiServer) put(q *corev1.ResourceQuota) {
	q = q.DeepCopy()
	a.version++
	q.ResourceVersion = strconv.Itoa(a.version)
	a.quotas[q.Name] = q
	for name, used := range q.Status.Used {
		if hard := q.Status.Hard[name]; used.Cmp(hard) > 0 {
			a.over = append(a.over, fmt.Sprintf("%s: %s of %s: %s", q.Name, name, hard.String(), used.String()))
		}
	}
}

// ServeHTTP implements http.Handler.
func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if len(parts) > 4 {
		a.mu.Lock()
		a.asked++
		a.mu.Unlock()
	}
	switch {
	case !strings.Contains(r.URL.Path, "resourcequotas"):
		a.fail(w, apierrors.NewNotFound(schema.GroupResource{}, ""))
	case r.URL.Query().Get("sendInitialEvents") == "true":
		a.fail(w, apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil))
	case r.URL.Query().Get("watch") == "true":
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	case r.Method == http.MethodPut:
		a.update(w, r)
	case len(parts) == 6:
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.reads != nil {
			a.fail(w, a.reads)
			return
		}
		if q := a.quotas[parts[5]]; q != nil {
			a.write(w, http.StatusOK, q)
			return
		}
		a.fail(w, apierrors.NewNotFound(schema.GroupResource{Resource: "resourcequotas"}, parts[5]))
	default:
		a.mu.Lock()
		defer a.mu.Unlock()
		list := corev1.ResourceQuotaList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(a.version)}}
		list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ResourceQuotaList"))
		for _, q := range a.quotas {
			list.Items = append(list.Items, *q)
		}
		a.write(w, http.StatusOK, &list)
	}
}

func (a *apiServer) update(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has disconnected
	}
	object, _, err := a.decode.Decode(body, nil, nil)
	if err != nil {
		a.t.Error(err)
		return
	}
	got := object.(*corev1.ResourceQuota)
	if a.before != nil {
		if fault := a.before(got); fault != nil {
			a.fail(w, fault)
			return
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.puts++
	resource := schema.GroupResource{Resource: "resourcequotas"}
	switch now := a.quotas[got.Name]; {
	case now == nil:
		a.fail(w, apierrors.NewNotFound(resource, got.Name))
	case now.ResourceVersion != got.ResourceVersion:
		a.fail(w, apierrors.NewConflict(resource, got.Name, errors.New("the object has been modified")))
	default:
		a.put(got)
		if a.lost != nil && a.lost() {
			panic(http.ErrAbortHandler) // closes the connection
		}
		a.write(w, http.StatusOK, a.quotas[got.Name])
	}
}

func (a *apiServer) fail(w http.ResponseWriter, err *apierrors.StatusError) {
	status := err.Status()
	status.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Status"})
	a.write(w, int(status.Code), &status)
}

func (a *apiServer) write(w http.ResponseWriter, code int, object runtime.Object) {
	if q, ok := object.(*corev1.ResourceQuota); ok {
		q.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ResourceQuota"))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(object); err != nil {
		a.t.Log(err) // the client has disconnected
	}
}

// used returns the used amount in the status of a quota.
func (a *apiServer) used(quota, resource string) int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	quantity := a.quotas[quota].Status.Used[corev1.ResourceName(resource)]
	return quantity.Value()
}

// state returns a state of the cluster that is read from the server.
func (a *apiServer) state() *cluster.State {
	a.t.Helper()
	kubeconfig := filepath.Join(a.t.TempDir(), "kubeconfig")
	content := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"x","clusters":[{"name":"c","cluster":{"server":%q}}],`+
		`"contexts":[{"name":"x","context":{"cluster":"c"}}]}`, a.URL)
	if err := os.WriteFile(kubeconfig, []byte(content), 0o600); err != nil {
		a.t.Fatal(err)
	}
	state, err := cluster.New(cluster.Options{Kubeconfig: kubeconfig})
	if err == nil {
		err = state.Follow(a.t.Context(), Plugin().Needs...)
	}
	if err != nil {
		a.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(a.t.Context(), 5*time.Minute)
	defer cancel()
	if err := state.Wait(ctx); err != nil {
		a.t.Fatal(err)
	}
	return state
}

// replica returns a new chain that reads the cluster from the server.
func (a *apiServer) replica() *admission.Chain {
	a.t.Helper()
	return chainIn(a.t, a.state())
}

// chainIn returns a chain with a new plugin.
func chainIn(t testing.TB, state *cluster.State) *admission.Chain {
	t.Helper()
	plugin := Plugin()
	if err := state.Follow(t.Context(), plugin.Needs...); err != nil {
		t.Fatal(err)
	}
	chain, err := admission.NewChain([]admission.Plugin{plugin}, map[string]admission.Enabled{plugin.Name: {}}, state, nil)
	if err != nil {
		t.Fatal(err)
	}
	return chain
}
