package cluster

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/client-go/tools/cache"
)

// A Putter adds objects to a State that are not in the cluster or its files, such as
// objects that are about to be created. They replace objects of the cluster or the files
// with the same name.
type Putter struct{ state *State }

// NewPutter returns a Putter for the State. If the State watches a cluster, only objects
// of kinds that it watches already can be put.
func (s *State) NewPutter() *Putter { return &Putter{s} }

// Put adds or replaces an object, given as JSON, as an API server would store it. Fields
// that the kind does not have are dropped, as kube-apiserver does. put is false if
// nothing reads objects of the kind.
func (p *Putter) Put(document []byte) (put bool, err error) {
	gvk, err := json.DefaultMetaFactory.Interpret(document)
	if err != nil {
		return false, err
	}
	for _, kind := range p.state.kinds {
		store := p.state.find(kind)
		if kind.list == nil || store == nil || kind.GroupVersionKind() != *gvk {
			continue
		}
		decoded, _, err := store.decoder().Decode(document, nil, nil)
		if err != nil {
			return false, err
		}
		if err := store.pin(decoded.(Object)); err != nil {
			return true, err
		}
		if err := p.control(decoded); err != nil {
			return true, err
		}
		put = true
	}
	return put, nil
}

// control does the work of kube-controller-manager for a new object: it creates the
// default ServiceAccount of a Namespace.
func (p *Putter) control(object runtime.Object) error {
	namespace, ok := object.(*corev1.Namespace)
	accounts := p.state.find(ServiceAccounts.Kind)
	if !ok || accounts == nil {
		return nil
	}
	if _, exists := accounts.lookup(namespace.Name, "default"); exists {
		return nil
	}
	return accounts.pin(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: namespace.Name}})
}

// setUsage sets the status of a ResourceQuota without one to no usage, as the quota
// controller does.
func setUsage(quota *corev1.ResourceQuota) {
	if quota.Status.Hard != nil {
		return
	}
	quota.Status.Hard = quota.Spec.Hard.DeepCopy()
	quota.Status.Used = make(corev1.ResourceList, len(quota.Spec.Hard))
	for name, hard := range quota.Spec.Hard {
		quota.Status.Used[name] = *resource.NewQuantity(0, hard.Format)
	}
}

// pin adds an object to the store. Events and lists of the API server do not change it.
func (s *store) pin(object Object) error {
	if s.kind.setDefaults != nil {
		s.kind.setDefaults(object)
	}
	if quota, ok := object.(*corev1.ResourceQuota); ok {
		setUsage(quota)
	}
	if s.files != nil {
		s.files.mu.Lock()
		defer s.files.mu.Unlock()
		return s.files.write(object)
	}
	trimmed, err := s.kind.trim(object.DeepCopyObject())
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pinned == nil {
		s.pinned = make(map[cache.ObjectName]pinned)
	}
	s.pinned[cache.MetaObjectToName(object)] = pinned{whole: object, trimmed: trimmed.(Object)}
	s.now.put(object.GetNamespace(), object.GetName(), entry{trimmed.(Object), memoryOf(trimmed.(Object))})
	return nil
}

// pinned is an object of pin, with all fields and with those that the cache keeps.
type pinned struct{ whole, trimmed Object }

// pinnedBy returns the pinned object with a name.
func (s *store) pinnedBy(name cache.ObjectName) (pinned, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	p, ok := s.pinned[name]
	return p, ok
}

// withPinned returns the items of a list from the API server with the pinned objects of
// the namespace, which replace items with the same name.
func (s *store) withPinned(namespace string, items []runtime.Object) []runtime.Object {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var all []runtime.Object
	for _, item := range items {
		if _, ok := s.pinned[cache.MetaObjectToName(item.(metav1.Object))]; !ok {
			all = append(all, item)
		}
	}
	for name, p := range s.pinned {
		if namespace == "" || name.Namespace == namespace {
			all = append(all, p.whole)
		}
	}
	return all
}

func (s *store) hasPinned() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.pinned != nil
}
