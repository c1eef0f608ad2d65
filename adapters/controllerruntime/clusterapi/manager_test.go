package clusterapi

import (
	"net/http"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/controller-runtime/pkg/webhook/conversion"

	bootstrapv1beta1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta1" //nolint:staticcheck // webhooks convert from it
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1beta1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta1" //nolint:staticcheck // webhooks convert from it
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	bootstrapwebhooks "sigs.k8s.io/cluster-api/bootstrap/kubeadm/webhooks/admission"
	controlplanewebhooks "sigs.k8s.io/cluster-api/controlplane/kubeadm/webhooks/admission"

	"github.com/go-logr/logr"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
)

// webhooks are the webhooks of the kubeadm providers, by path.
type webhooks map[string]*admission.Webhook

// setUp lets the providers set up their webhooks. The only webhook with a client gets one that has
// the objects.
func setUp(t testing.TB, objects ...client.Object) webhooks {
	t.Helper()
	log.SetLogger(logr.Discard())
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		bootstrapv1.AddToScheme, bootstrapv1beta1.AddToScheme, controlplanev1.AddToScheme, controlplanev1beta1.AddToScheme,
		autoscalingv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	m := &setupManager{scheme: scheme, converters: conversion.NewRegistry(),
		server: &setupServer{mux: http.NewServeMux(), webhooks: make(webhooks)}}
	known := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	for _, provider := range []interface{ SetupWebhookWithManager(manager.Manager) error }{
		&controlplanewebhooks.KubeadmControlPlane{}, &controlplanewebhooks.KubeadmControlPlaneTemplate{},
		&controlplanewebhooks.ScaleValidator{Client: known},
		&bootstrapwebhooks.KubeadmConfig{}, &bootstrapwebhooks.KubeadmConfigTemplate{},
	} {
		if err := provider.SetupWebhookWithManager(m); err != nil {
			t.Fatal(err)
		}
	}
	return m.server.webhooks
}

// setupManager is the part of a manager that setting up webhooks needs.
type setupManager struct {
	manager.Manager
	scheme     *runtime.Scheme
	converters conversion.Registry
	server     *setupServer
}

func (m *setupManager) GetScheme() *runtime.Scheme                { return m.scheme }
func (m *setupManager) GetWebhookServer() webhook.Server          { return m.server }
func (m *setupManager) GetConverterRegistry() conversion.Registry { return m.converters }
func (m *setupManager) GetConfig() *rest.Config                   { return &rest.Config{} }
func (m *setupManager) GetLogger() logr.Logger                    { return logr.Discard() }

// setupServer collects the admission webhooks that are registered with it.
type setupServer struct {
	webhook.Server
	mux *http.ServeMux
	webhooks
}

func (s *setupServer) WebhookMux() *http.ServeMux { return s.mux }

func (s *setupServer) Register(path string, handler http.Handler) {
	s.mux.Handle(path, handler)
	if w, ok := handler.(*admission.Webhook); ok {
		s.webhooks[path] = w
	}
}
