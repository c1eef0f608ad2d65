package cluster

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestShelf fills a namespace up to its limit and beyond it, and an object likewise.
func TestShelf(t *testing.T) {
	of := func(bytes int64) entry { return entry{&corev1.ConfigMap{}, bytes} }
	f := func(about string, s *shelf, kept, left string, bytes, recoverable int64) {
		t.Helper()
		var has, lacks []string
		for namespace, b := range s.buckets {
			for name, e := range b.objects {
				if e.object != nil {
					has = append(has, namespace+"/"+name)
				} else {
					lacks = append(lacks, namespace+"/"+name)
				}
			}
		}
		slices.Sort(has)
		slices.Sort(lacks)
		if strings.Join(has, " ") != kept || strings.Join(lacks, " ") != left || s.bytes != bytes || s.count != len(has) ||
			s.recoverable() != recoverable {
			t.Errorf("%s: got %v of %d bytes, without %v; %d are counted, %d recoverable; want %s of %d, without %s, %d", about,
				has, s.bytes, lacks,
				s.count, s.recoverable(), kept, bytes, left, recoverable)
		}
	}
	s := newShelf(bounds{object: 50, namespace: 100})
	s.put("a", "49", of(49))
	s.put("a", "50", of(50))
	f("below the limit", s, "a/49 a/50", "", 99, 0)
	s.put("b", "51", of(51))
	f("an object above its limit", s, "a/49 a/50", "b/51", 99, 0)
	s.put("a", "1", of(1))
	f("at the limit", s, "a/1 a/49 a/50", "b/51", 100, 0)
	s.put("a", "one", of(1))
	f("above the limit", s, "a/1 a/49 a/one", "a/50 b/51", 51, 0)
	s.put("b", "51", of(3))
	f("an object that shrinks", s, "a/1 a/49 a/one b/51", "a/50", 54, 0)
	s.remove("a", "one")
	f("as much as the limit", s, "a/1 a/49 b/51", "a/50", 53, 0)
	s.put("a", "49", of(37))
	f("room for what is left out", s, "a/1 a/49 b/51", "a/50", 41, 50)
	s.remove("a", "50")
	f("without what is left out", s, "a/1 a/49 b/51", "", 41, 0)
	s.remove("a", "1")
	s.remove("a", "49")
	s.remove("b", "51")
	if f("nothing", s, "", "", 0, 0); len(s.buckets) != 0 {
		t.Errorf("got %d namespaces, want none", len(s.buckets))
	}
}

// TestAccount has tenants fill many namespaces: only the largest namespaces lose objects.
func TestAccount(t *testing.T) {
	account := &account{max: 1000, stores: make(map[*store]struct{})}
	of := func(kind *Kind) *store {
		s := newStore(kind, slog.New(slog.DiscardHandler))
		s.account = account
		account.add(s)
		return s
	}
	maps, accounts, nodes := of(configMap.Kind), of(ServiceAccounts.Kind), of(Nodes.Kind)
	put := func(s *store, namespace, name string, bytes int64) {
		a := &arrived{object: &corev1.ConfigMap{}, bytes: bytes}
		a.Namespace, a.Name = namespace, name
		if err := s.Add(a); err != nil {
			t.Fatal(err)
		}
	}
	put(nodes, "", "node", 300)
	put(maps, "small", "a", 20)
	put(accounts, "small", "b", 20)
	for i := range 33 {
		put(maps, fmt.Sprintf("large%d", i/11), fmt.Sprint(i), 20)
	}
	if left := maps.leftOut(); left != 0 || account.sum() != 1000 {
		t.Errorf("got %d left out and %d bytes at the limit, want none and 1000", left, account.sum())
	}
	put(maps, "large0", "more", 1)
	if account.sum() > 875 || nodes.leftOut() != 0 || accounts.leftOut() != 0 {
		t.Errorf("got %d bytes, want at most 875; left out are %d nodes and %d ServiceAccounts, want none", account.sum(), nodes.leftOut(),
			accounts.leftOut())
	}
	if _, ok := maps.lookup("small", "a"); !ok || maps.leftOut() == 0 {
		t.Errorf("the object of a small namespace is there: %v; %d are left out", ok, maps.leftOut())
	}
}

// TestMemoryOf compares estimates with the memory of the fields.
func TestMemoryOf(t *testing.T) {
	empty := memoryOf(&corev1.ServiceAccount{})
	f := func(a *corev1.ServiceAccount, least, most int64) {
		t.Helper()
		if got := memoryOf(a) - empty; got < least || got > most {
			t.Errorf("got %d bytes for %+v, want %d to %d", got, a, least, most)
		}
	}
	f(&corev1.ServiceAccount{}, 0, 0)
	f(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: strings.Repeat("x", 1000)}}, 1000, 1000)
	f(&corev1.ServiceAccount{Secrets: make([]corev1.ObjectReference, 70_000)}, 70_000*112, 70_000*112)
	f(&corev1.ServiceAccount{Secrets: []corev1.ObjectReference{{Name: "secret"}}}, 118, 118)
	f(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"12345": "67890"}}}, 42, 80)
	f(&corev1.ServiceAccount{AutomountServiceAccountToken: new(true)}, 1, 8)
}

// TestTooLargeNamespace has a tenant fill a namespace with parameters. Other namespaces are listed
// completely, and parameters of the tenant can be read by name. When the tenant has removed enough, its
// namespace is listed, too.
func TestTooLargeNamespace(t *testing.T) {
	if testing.Short() {
		t.Skip("many large objects take long; TestShelf has small ones")
	}
	a, s, kinds, _ := newDynamic(t)
	param := func(namespace, name string, bytes int) *corev1.ConfigMap {
		return &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string]string{"x": strings.Repeat("x", bytes)},
		}
	}
	const tenants = 40
	a.put(param("good", "param", 900<<10))
	for i := range tenants / 2 {
		a.put(param("evil", fmt.Sprint(i), 900<<10))
	}
	k, err := kinds.Watch(t.Context(), configMapKind, every)
	if err != nil {
		t.Fatal(err)
	}
	defer k.Stop()
	<-k.Synced()
	for i := tenants / 2; i < tenants; i++ {
		a.put(param("evil", fmt.Sprint(i), 900<<10))
	}
	a.put(param("good", "last", 1))
	eventually(t, "the last object", func() bool { _, ok := k.store.lookup("good", "last"); return ok })
	if list, err := k.List("good"); len(list) != 2 || err != nil {
		t.Errorf("got %d objects of another namespace, %v, want 2", len(list), err)
	}
	list, err := k.List("evil")
	if want := `in the namespace "evil" are too large for the cache`; !IsTooLarge(err) ||
		!strings.Contains(err.Error(), want) || list != nil {
		t.Errorf("got %d objects, %v, want an error with %q", len(list), err, want)
	}
	if !IsTooLarge(k.LeftOut()) || k.Err() != nil {
		t.Errorf("got %v, %v, want that objects are left out", k.LeftOut(), k.Err())
	}
	if got := strings.Join(s.LeftOut(), " "); !strings.HasSuffix(got, ` configmaps in "evil" are too large for the cache`) ||
		strings.Contains(got, "good") {
		t.Errorf("got %q, want the namespace that has too much", got)
	}
	for _, name := range []string{"good/param", "evil/none", "evil/0", "evil/39"} {
		namespace, name, _ := strings.Cut(name, "/")
		_, ok := k.objects.Cached(namespace, name)
		if err := k.objects.LeftOut(namespace, name); IsTooLarge(err) != (!ok && name != "none") {
			t.Errorf("%s/%s: got %v, cached %v", namespace, name, err, ok)
		}
	}
	for i := range tenants {
		if object, err := k.Get(t.Context(), "evil", fmt.Sprint(i)); err != nil || object.GetName() != fmt.Sprint(i) {
			t.Fatalf("got %v, %v for object %d, want it from the API server", object, err, i)
		}
	}
	if kept := k.store.kept(); kept > namespaceBytesMax+1<<20 || s.account.sum() < kept {
		t.Errorf("got %d bytes, want at most %d for a namespace, and the account has %d", kept, namespaceBytesMax, s.account.sum())
	}
	for i := range tenants - 4 {
		a.remove(param("evil", fmt.Sprint(i), 0))
	}
	eventually(t, "what is left out fits", func() bool { return k.store.canRecover() })
	a.bookmark() // as every minute
	eventually(t, "all objects fit",
		func() bool { list, err := k.List("evil"); return len(list) == 4 && err == nil && k.LeftOut() == nil })
}
