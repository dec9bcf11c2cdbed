package shardpub_test

import (
	"context"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/suisha-go/suisha/shardpub"
)

// An event that is there if, and only if, the rest of the transaction is.
func ExamplePublisher_transaction() {
	var (
		ctx  = context.Background()
		pool *pgxpool.Pool // yours
	)
	placeOrder := func(customer string) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `insert into orders (customer) values ($1)`, customer); err != nil {
				return err
			}
			pub, err := shardpub.NewPublisher(tx, shardpub.PublisherConfig{}, nil)
			if err != nil {
				return err
			}
			msg := message.NewMessage(watermill.NewUUID(), []byte(`{"total": 12}`))
			msg.Metadata.Set(shardpub.MetadataKey, customer)
			return pub.Publish("orders", msg) // last: it holds the lock of the log until the commit
		})
	}
	_ = placeOrder
}

// The same with database/sql and watermill-sql's own Publisher.
func ExampleNewSQLSchema() {
	var (
		ctx  = context.Background()
		pool *pgxpool.Pool // yours
	)
	placeOrder := func(customer string) error {
		db := stdlib.OpenDBFromPool(pool)
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := tx.ExecContext(ctx, `insert into orders (customer) values ($1)`, customer); err != nil {
			return err
		}
		pub, err := sql.NewPublisher(tx, sql.PublisherConfig{
			SchemaAdapter: shardpub.NewSQLSchema(shardpub.SQLSchemaConfig{}),
		}, watermill.NopLogger{})
		if err != nil {
			return err
		}
		msg := message.NewMessage(watermill.NewUUID(), []byte(`{"total": 12}`))
		msg.Metadata.Set(shardpub.MetadataKey, customer)
		if err := pub.Publish("orders", msg); err != nil {
			return err
		}
		return tx.Commit()
	}
	_ = placeOrder
}
