// Command collector is an OpenTelemetry collector. Its receiver is the one that released collectors have. It prints its
// address, and then each batch of spans as OTLP in JSON on a line of its own.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/config/configgrpc"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatalf("usage: %s ADDRESS", os.Args[0])
	}
	if err := run(os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func run(address string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	var mu sync.Mutex
	sink, err := consumer.NewTraces(func(_ context.Context, traces ptrace.Traces) error {
		text, err := new(ptrace.JSONMarshaler).MarshalTraces(traces)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		_, err = fmt.Printf("%s\n", text)
		return err
	})
	if err != nil {
		return err
	}
	factory := otlpreceiver.NewFactory()
	config := factory.CreateDefaultConfig().(*otlpreceiver.Config)
	grpc := configgrpc.NewDefaultServerConfig()
	grpc.NetAddr.Endpoint, grpc.NetAddr.Transport = address, "tcp"
	config.Protocols.GRPC = configoptional.Some(grpc)
	settings := receiver.Settings{ID: component.NewID(factory.Type()), TelemetrySettings: componenttest.NewNopTelemetrySettings()}
	traces, err := factory.CreateTraces(ctx, settings, config, sink)
	if err != nil {
		return err
	}
	if err := traces.Start(ctx, componenttest.NewNopHost()); err != nil {
		return err
	}
	fmt.Println("ready")
	<-ctx.Done()
	return traces.Shutdown(context.WithoutCancel(ctx))
}
