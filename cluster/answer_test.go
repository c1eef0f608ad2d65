package cluster

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/httpbound"
)

// A lender lends at most the bytes that are left.
type lender struct{ left, most, lent, kept int64 }

// Lend implements codec.MemoryLender.
func (l *lender) Lend(_ context.Context, n int64, _ bool) (giveBack func(), ok bool) {
	if n > l.left {
		return func() {}, false
	}
	l.left -= n
	l.lent += n
	l.most = max(l.most, l.lent)
	return func() { l.left += n; l.lent -= n }, true
}

// Keep implements codec.MemoryLender.
func (l *lender) Keep(n int64) bool {
	l.kept += n
	return n <= l.left
}

func newConfigMap(name string, bytes int) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop"}, Data: map[string]string{"a": strings.Repeat("x", bytes)},
	}
}

// TestLiveMemory checks the memory that is lent for large answers of the API server: for their bytes
// while they are read, and for the objects until the review ends.
func TestLiveMemory(t *testing.T) {
	a := newAPIServer(t)
	s := a.newState(Options{})
	if err := s.Follow(t.Context(), configMap.Called("get", "list")); err != nil {
		t.Fatal(err)
	}
	maps := configMap.In(s.View(configMap.Called("get", "list")))
	const large = 1 << 20
	a.put(newConfigMap("large", large))
	f := func(left int64, want error, ask func(ctx context.Context) error) {
		t.Helper()
		l := &lender{left: left}
		err := ask(context.WithValue(t.Context(), codec.LenderKey{}, l))
		if !errors.Is(err, want) || l.lent != 0 {
			t.Errorf("got %v with %d bytes still lent, want %v", err, l.lent, want)
		}
		if want == nil && (l.most < large*memoryOfByte || l.kept < large || l.kept > 2*large) {
			t.Errorf("got %d bytes lent and %d kept of an object of %d", l.most, l.kept, large)
		}
	}
	get := func(ctx context.Context) error { _, err := maps.GetLive(ctx, "shop", "large"); return err }
	list := func(ctx context.Context) error { _, err := maps.ListLive(ctx, "shop"); return err }
	f(1<<30, nil, get)
	f(1<<30, nil, list)
	f(large, codec.ErrNoMemory, get)
	f(large, codec.ErrNoMemory, list)
}

// TestLiveListBytes checks the maximum memory of the objects of a live list.
func TestLiveListBytes(t *testing.T) {
	s := newStore(ResourceClaims.Kind, slog.New(slog.DiscardHandler))
	claim := resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "n"}}
	message, err := claim.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	one := new(liveList)
	if err := s.addLive(t.Context(), one, message, true, new(codec.Loan)); err != nil {
		t.Fatal(err)
	}
	f := func(bytes int64, want error) {
		t.Helper()
		list := &liveList{bytes: bytes - one.bytes}
		if err := s.addLive(t.Context(), list, message, true, new(codec.Loan)); !errors.Is(err, want) {
			t.Errorf("%d bytes: got %v, want %v", bytes, err, want)
		}
	}
	f(liveBytesMax-1, nil)
	f(liveBytesMax, nil)
	f(liveBytesMax+1, errListTooLarge)
}

// TestAnswerBytes checks the maximum length of answers that are read as a whole, and of error answers.
func TestAnswerBytes(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine reads long answers")
	}
	a := newAPIServer(t)
	s := a.newState(Options{})
	if err := s.Follow(t.Context(), configMap.Called("get", "list")); err != nil {
		t.Fatal(err)
	}
	maps := configMap.In(s.View(configMap.Called("get")))
	f := func(code, bytes int, want string) {
		t.Helper()
		a.intercept(func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			const head, tail = `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"},"data":{"a":"`, `"}}`
			_, _ = w.Write([]byte(head + strings.Repeat("x", bytes-len(head)-len(tail)) + tail))
			return true
		})
		_, err := maps.GetLive(t.Context(), "shop", "a")
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%d bytes: got %v, want %q", bytes, err, want)
		} else if err != nil && len(err.Error()) > 2*httpbound.ErrorBytesMax {
			t.Errorf("%d bytes: got an error of %d bytes", bytes, len(err.Error()))
		}
	}
	f(http.StatusOK, eventBytesMax-1, "")
	f(http.StatusOK, eventBytesMax, "")
	f(http.StatusOK, eventBytesMax+1, "more than")
	f(http.StatusTeapot, eventBytesMax+1, "cannot get")
}
