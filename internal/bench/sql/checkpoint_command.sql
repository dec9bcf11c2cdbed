-- Writes all dirty pages.
checkpoint
